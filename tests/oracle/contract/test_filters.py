"""Which tokens may be drawn, exactly at the edges of each filter, and both ways that rounding allows."""

from itertools import permutations

import numpy as np
import pytest

from oracle.contract.filters import MASS_TOLERANCE, certain_tokens, kept_tokens
from oracle.contract.processing import USUAL_FILTERS, Place

pytestmark = pytest.mark.without_shape_checks

SHARES = [0.5, 0.3, 0.15, 0.05]
"""Probabilities of four tokens at temperature 1."""

BOUND = 0.01


def kept(parameters, *, scores=None, bound=0.0, order=(), tokens=kept_tokens):
    place = Place({"temperature": 1.0, **parameters}, (), (), order=order)
    row = np.log(SHARES) if scores is None else np.array(scores)
    return np.flatnonzero(tokens(row, place, bound)).tolist()


@pytest.mark.parametrize("tokens", [kept_tokens, certain_tokens])
@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"top_k": 1}, [0]),
        ({"top_k": 3}, [0, 1, 2]),
        ({"top_k": 4}, [0, 1, 2, 3]),
        ({"top_k": 0}, [0, 1, 2, 3]),
        ({"top_k": 99}, [0, 1, 2, 3]),
        ({"top_p": 0.4}, [0]),
        ({"top_p": 0.51}, [0, 1]),
        ({"top_p": 0.79}, [0, 1]),
        ({"top_p": 0.81}, [0, 1, 2]),
        ({"top_p": 1.0}, [0, 1, 2, 3]),
        ({"top_p": 0.0}, [0]),
        ({"min_p": 0.0}, [0, 1, 2, 3]),
        ({"min_p": 0.29}, [0, 1, 2]),
        ({"min_p": 0.31}, [0, 1]),
        ({"min_p": 1.0}, [0]),
        ({"top_k": 2, "min_p": 0.01}, [0, 1]),
    ],
    ids=str,
)
def test_filter_keeps_what_it_means_to_where_nothing_is_near(parameters, expected, tokens):
    assert kept(parameters, tokens=tokens) == expected


@pytest.mark.parametrize("tokens", [kept_tokens, certain_tokens])
def test_temperature_decides_what_the_filters_see(tokens):
    """At temperature 2 the probabilities go as their roots: 0.38, 0.29, 0.21, 0.12."""
    assert kept({"temperature": 2.0, "top_p": 0.6}, tokens=tokens) == [0, 1]
    assert kept({"temperature": 0.5, "top_p": 0.6}, tokens=tokens) == [0]
    assert kept({"temperature": 2.0, "min_p": 0.5}, tokens=tokens) == [0, 1, 2]


@pytest.mark.parametrize("tokens", [kept_tokens, certain_tokens])
def test_regression_filters_before_temperature_see_probabilities_at_temperature_one(tokens):
    """mlx-lm filters first: at temperature 2 its filters keep what they keep at temperature 1."""
    for order in (("top_p", "min_p", "temperature"), ("min_p", "top_p", "temperature")):
        assert kept({"temperature": 2.0, "top_p": 0.51}, order=order, tokens=tokens) == [0, 1]
        assert kept({"temperature": 2.0, "min_p": 0.5}, order=order, tokens=tokens) == [0, 1]
    before = ("temperature", "top_p", "min_p")
    assert kept({"temperature": 2.0, "min_p": 0.5}, order=before, tokens=tokens) == [0, 1, 2]
    assert kept({"temperature": 2.0, "min_p": 0.5}, order=("temperature",), tokens=tokens) == [0, 1, 2]


@pytest.mark.parametrize("tokens", [kept_tokens, certain_tokens])
def test_filters_come_in_the_order_of_the_engine(tokens):
    """Of the first two alone, the first has 0.625; of all four, it has 0.5."""
    parameters = {"top_k": 2, "top_p": 0.6}
    assert kept(parameters, order=("top_k", "top_p"), tokens=tokens) == [0]
    assert kept(parameters, order=("top_p", "top_k"), tokens=tokens) == [0, 1]


def test_filters_without_draws_do_nothing():
    assert kept({"temperature": 0.0, "top_k": 3, "top_p": 0.9}) == [0]


@pytest.mark.parametrize(
    ("gap", "bound", "may", "must"),
    [(0.0, 0.0, [0, 1], []), (0.019, BOUND, [0, 1], []), (0.021, BOUND, [0], [0]), (0.001, 0.0, [0], [0])],
    ids=["tied", "nearly tied", "just apart", "exact"],
)
@pytest.mark.parametrize("parameters", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}], ids=str)
def test_near_tie_for_the_first_place_lets_both_come_and_neither_for_certain(parameters, gap, bound, may, must):
    scores = [1.0, 1.0 - gap, -3.0]
    assert kept(parameters, scores=scores, bound=bound) == may
    assert kept(parameters, scores=scores, bound=bound, tokens=certain_tokens) == must


@pytest.mark.parametrize(
    ("gap", "bound", "may", "must"),
    [(0.0, 0.0, [0, 1], [0, 1]), (0.001, BOUND, [0, 1], []), (0.6, BOUND, [0, 1], [0]), (0.8, BOUND, [0], [0])],
)
def test_token_at_the_edge_of_min_p_is_left_open(gap, bound, may, must):
    min_p = 1.0 if gap < 0.5 else np.exp(-0.6)
    assert kept({"min_p": min_p}, scores=[1.0, 1.0 - gap, -3.0], bound=bound) == may
    assert kept({"min_p": min_p}, scores=[1.0, 1.0 - gap, -3.0], bound=bound, tokens=certain_tokens) == must


def test_tie_at_the_last_place_leaves_the_others_certain():
    scores = [3.0, 1.0, 1.0, 0.0]
    assert kept({"top_k": 2}, scores=scores) == [0, 1, 2]
    assert kept({"top_k": 2}, scores=scores, tokens=certain_tokens) == [0]
    assert kept({"top_k": 3}, scores=scores, tokens=certain_tokens) == [0, 1, 2]


@pytest.mark.parametrize(("top_p", "may", "must"), [(0.5, [0, 1], [0]), (0.8, [0, 1, 2], [0, 1])])
def test_mass_that_just_reaches_top_p_leaves_the_next_token_open(top_p, may, must):
    for nearly in (top_p - MASS_TOLERANCE / 2, top_p, top_p + MASS_TOLERANCE / 2):
        assert kept({"top_p": nearly}) == may
        assert kept({"top_p": nearly}, tokens=certain_tokens) == must


def test_regression_nucleus_follows_what_rounding_does_to_probabilities():
    """In half precision the likeliest token's share may come out as 0.89, and the next may be drawn then."""
    scores = np.log([0.9, 0.08, 0.02])
    assert kept({"top_p": 0.895}, scores=scores) == [0]
    assert kept({"top_p": 0.895}, scores=scores, bound=0.05) == [0, 1]
    assert kept({"top_p": 0.905}, scores=scores, bound=0.05, tokens=certain_tokens) == [0]


def test_barred_tokens_are_never_kept():
    scores = [1.0, -np.inf, 0.0, -np.inf]
    for parameters in ({}, {"top_k": 3}, {"top_p": 1.0}, {"min_p": 0.0}, {"temperature": 0.0}):
        assert set(kept(parameters, scores=scores, bound=BOUND)) <= {0, 2}
    assert kept({}, scores=[-np.inf, -np.inf]) == []


def drawn_from(scores, place):
    """What a plain implementation keeps: each filter over what the one before has left, ties to the lower id."""
    left = list(np.argsort(-scores, kind="stable"))
    for name in place.filters:
        value = place.value(name)
        weights = np.exp(scores[left] / place.value("temperature"))
        shares = weights / weights.sum()
        if name == "top_k":
            left = left[:value]
        elif name == "top_p":
            left = [each for each, before in zip(left, np.cumsum(shares) - shares, strict=True) if before < value]
        else:
            left = [each for each, share in zip(left, shares, strict=True) if share >= value * shares[0]]
    return set(left)


@pytest.mark.parametrize("bound", [0.0, 0.03, 0.4])
def test_rounding_within_the_bound_never_leaves_what_is_kept_and_never_takes_what_is_certain(bound):
    draws = np.random.Generator(np.random.Philox(key=1))
    orders = list(permutations(USUAL_FILTERS))
    num_open = 0
    for number in range(120):
        scores = draws.normal(scale=2.0, size=9).round(1)  # some are tied
        values = {"top_k": int(draws.integers(1, 6)), "top_p": draws.uniform(0.2, 1.0), "min_p": draws.uniform(0, 0.5)}
        names = draws.permutation(USUAL_FILTERS)[: draws.integers(1, 4)]
        parameters = {"temperature": draws.choice([0.5, 1.0, 1.5]), **{name: values[name] for name in names}}
        place = Place(parameters, (), (), order=orders[number % len(orders)])
        rounded = scores + draws.choice([-1.0, 0.0, 1.0], size=9) * bound
        may, must = (set(np.flatnonzero(of(scores, place, bound))) for of in (kept_tokens, certain_tokens))
        found = drawn_from(rounded, place)
        assert must <= found <= may, (scores, parameters, place.filters)
        num_open += len(may - must)
    assert num_open < 120 * 9 / 2

"""From logits to probabilities: each step by hand, and all of them against a plain computation."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from refinfer.errors import InvariantError, NoTokenLeftError
from refinfer.sampling import SampleContext, SamplingParams, probabilities
from refinfer.sampling.logits import (
    add_logit_bias,
    apply_frequency_penalty,
    apply_presence_penalty,
    apply_repetition_penalty,
    apply_temperature,
    below_highest,
    highest_token_id,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    mask_token_ids,
    process_logits,
    softmax,
    top_token_ids,
)

INF = float("inf")

MARGIN = 1e-11
"""Where min_p or top_p decides within this, rounding may decide it; ten times the bound on probabilities."""

# Halves, so that ties are the rule; and numbers of any kind.
logit_values = st.integers(-6, 6).map(lambda value: value / 2) | st.floats(-30, 30, width=32) | st.just(-INF)
rows = st.lists(logit_values, min_size=1, max_size=12).filter(lambda row: max(row) > -INF)


def row_of(*values, dtype=np.float64):
    return np.array(values, dtype=dtype)


def context_of(params, *, prompt=(), output=(), eos=()):
    return SampleContext(params, 0, 0, tuple(prompt), list(output), frozenset(eos))


@st.composite
def cases(draw):
    """A row, and everything else that decides the token, with ids inside the row's vocabulary."""
    row = draw(rows)
    ids = st.integers(0, len(row) - 1)
    penalty = st.just(0.0) | st.floats(-2, 2)
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 1.0]) | st.floats(0.05, 5)),
        top_k=draw(st.integers(0, 14)),
        top_p=draw(st.just(1.0) | st.floats(0.01, 1)),
        min_p=draw(st.just(0.0) | st.floats(0, 1)),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.5]) | st.floats(0.25, 4)),
        presence_penalty=draw(penalty),
        frequency_penalty=draw(penalty),
        logit_bias=draw(st.none() | st.dictionaries(ids, st.floats(-5, 5), max_size=4)),
        stop_token_ids=draw(st.lists(ids, max_size=3)),
        min_tokens=draw(st.integers(0, 4)),
    )
    prompt, output = draw(st.lists(ids, max_size=6)), draw(st.lists(ids, max_size=6))
    eos = draw(st.sets(ids, max_size=2))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return np.array(row, dtype=dtype), params, {"prompt": prompt, "output": output, "eos": eos}


EXAMPLES: dict[str, Any] = {
    "temperature": 2.0,
    "max_tokens": 1,
    "ignore_eos": True,
    "n": 2,
    "top_k": 2,
    "top_p": 0.5,
    "min_p": 0.5,
    "repetition_penalty": 2.0,
    "presence_penalty": 1.0,
    "frequency_penalty": 1.0,
    "logit_bias": {1: 1.0},
    "logprobs": 1,
    "prompt_logprobs": 1,
    "seed": 1,
    "stop": "a",
    "stop_token_ids": (1,),
    "min_tokens": 9,
}
"""A value of each parameter that is not its default."""


@pytest.mark.parametrize("name", [field.name for field in fields(SamplingParams)])
def test_parameters_tell_of_every_step_before_temperature(name):
    """A step that `changes_logits` does not know of is passed over where it is the only one."""
    row = row_of(1, 2, 3)
    values: dict[str, Any] = {"max_tokens": None, name: EXAMPLES[name]}
    params, with_all_steps = SamplingParams(**values), SamplingParams(**values)
    vars(with_all_steps)["changes_logits"] = True
    is_changed = process_logits(row, context_of(with_all_steps, output=[1], eos={0})).tolist() != row.tolist()
    assert params.changes_logits == is_changed


@given(case=cases())
def test_processed_logits_equal_the_plain_scores(plain_scores, case):
    row, params, tokens = case
    expected = plain_scores(row.tolist(), params, **tokens)
    assume(expected)
    found = process_logits(row, context_of(params, **tokens))
    assert found.tolist() == [expected.get(token_id, -INF) for token_id in range(len(row))]
    assert not np.shares_memory(found, row)


@given(case=cases())
def test_probabilities_equal_the_plain_computation(plain_distribution, case):
    row, params, tokens = case
    before = row.copy()
    expected = plain_distribution(row.tolist(), params, **tokens)
    assume(expected.margin > MARGIN)
    if not expected.probability_by_token_id:
        with pytest.raises(NoTokenLeftError, match=r"none of the \d+ tokens is left to choose: min_tokens="):
            probabilities(row, context_of(params, **tokens))
        return
    found = probabilities(row, context_of(params, **tokens))
    np.testing.assert_allclose(found, expected.row(len(row)), rtol=0, atol=1e-12)
    assert {int(token_id) for token_id in np.flatnonzero(found)} <= set(expected.probability_by_token_id)
    np.testing.assert_array_equal(row, before)


@pytest.mark.parametrize(
    "step",
    [
        lambda row: mask_token_ids(row, {1}),
        lambda row: add_logit_bias(row, {1: 2.0}),
        lambda row: apply_repetition_penalty(row, 2.0, [1]),
        lambda row: apply_frequency_penalty(row, 2.0, [1]),
        lambda row: apply_presence_penalty(row, 2.0, [1]),
        lambda row: apply_temperature(row, 0.5),
        lambda row: keep_min_p(row, 0.9),
        lambda row: keep_top_k(row, 1),
        lambda row: keep_top_p(row, 0.1),
        softmax,
    ],
    ids=["mask", "bias", "repetition", "frequency", "presence", "temperature", "min_p", "top_k", "top_p", "softmax"],
)
def test_no_step_changes_the_row_that_it_is_given(step):
    row = row_of(3, 2, 1)
    row.flags.writeable = False
    assert step(row).tolist() != row.tolist() == [3, 2, 1]


def test_mask_of_min_tokens_covers_eos_and_stop_tokens_until_they_are_out():
    params = SamplingParams(min_tokens=2, stop_token_ids=[1], ignore_eos=True)
    row = row_of(1, 2, 3, 4)
    processed = [
        process_logits(row, context_of(params, prompt=[2] * 5, output=output, eos={3})).tolist()
        for output in ([], [2], [2, 2])
    ]
    assert processed == [[1, -INF, 3, -INF], [1, -INF, 3, -INF], [1, 2, 3, 4]]


def test_mask_token_ids_leaves_ids_without_a_logit_alone():
    assert mask_token_ids(row_of(1, 2, 3), {1, 3, 99, -1}).tolist() == [1, -INF, 3]


def test_logit_bias_is_added():
    assert add_logit_bias(row_of(1, -INF, 3), {2: -4.5, 1: 100.0}).tolist() == [1, -INF, -1.5]


def test_repetition_penalty_makes_a_token_less_likely_whatever_its_sign_and_once():
    assert apply_repetition_penalty(row_of(4, -4, 0, 4, -INF), 2.0, [0, 1, 2, 0, 0, 4]).tolist() == [2, -8, 0, 4, -INF]


def test_frequency_penalty_counts_and_presence_penalty_does_not():
    assert apply_frequency_penalty(row_of(1, 1, 1), 0.5, [2, 0, 2, 2]).tolist() == [0.5, 1, -0.5]
    assert apply_presence_penalty(row_of(1, 1, 1), 0.5, [2, 0, 2, 2]).tolist() == [0.5, 1, 0.5]


@pytest.mark.parametrize(
    ("penalty", "expected"),
    [
        ({"repetition_penalty": 2.0}, [2, 2, 4, 4]),
        ({"presence_penalty": 1.0}, [4, 3, 4, 4]),
        ({"frequency_penalty": 1.0}, [4, 2, 4, 4]),
    ],
    ids=str,
)
def test_only_the_repetition_penalty_looks_at_the_prompt(penalty, expected):
    context = context_of(SamplingParams(**penalty), prompt=[0, 0], output=[1, 1])
    assert process_logits(row_of(4, 4, 4, 4), context).tolist() == expected


def test_temperature_divides_differences():
    scaled = apply_temperature(row_of(1, 3, -1, -INF), 0.5)
    assert (scaled - scaled[0]).tolist() == [0, 4, -4, -INF]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-5])
def test_smallest_temperatures_are_the_limit_of_greedy(temperature):
    context = context_of(SamplingParams(temperature=temperature))
    assert probabilities(row_of(1, 7, 6.9, 7), context).tolist() == [0, 0.5, 0, 0.5]


def test_largest_temperature_makes_all_unmasked_tokens_equal():
    context = context_of(SamplingParams(temperature=1e308))
    assert probabilities(row_of(-50, 50, -INF, 0, 3), context).tolist() == [0.25, 0.25, 0, 0.25, 0.25]


def test_min_p_is_held_against_the_likeliest():
    row = np.log(row_of(0.5, 0.25, 0.125, 0.125))
    assert np.isfinite(keep_min_p(row, 0.4)).tolist() == [True, True, False, False]
    assert np.isfinite(keep_min_p(row, 0.2)).all()
    assert np.isfinite(keep_min_p(row, 1.0)).tolist() == [True, False, False, False]


@given(row=rows)
@example([1.0, 0.5])
@example([0.0, -1.0])
def test_highest_of_a_row_is_taken_from_all(row):
    assert below_highest(np.array(row)).tolist() == [value - max(row) for value in row]


def test_cuts_that_take_all_leave_the_rarest_token_its_chance():
    """Its probability vanishes beside 1, so that a sum of all reaches 1 without it."""
    found = probabilities(row_of(0.0, -60.0), context_of(SamplingParams(temperature=1.0, top_p=1.0, min_p=0.0)))
    assert found[1] > 0


def test_probabilities_of_a_greedy_choice_are_numbers_like_any_other():
    found = probabilities(row_of(0.0, 1.0), context_of(SamplingParams()))
    assert (found.dtype.name, found.tolist()) == ("float64", [0.0, 1.0])


def test_top_k_keeps_exactly_k_of_equals_and_the_lowest_ids():
    assert np.flatnonzero(np.isfinite(keep_top_k(row_of(1, 3, 2, 2, 2, 3), 4))).tolist() == [1, 2, 3, 5]


@given(row=rows, num_tokens=st.integers(0, 14))
def test_top_token_ids_are_the_first_of_all_in_order(row, num_tokens):
    in_order = sorted(range(len(row)), key=lambda token_id: (-row[token_id], token_id))
    assert top_token_ids(np.array(row), num_tokens).tolist() == in_order[:num_tokens]


@given(seed=st.integers(0, 99), vocab_size=st.integers(1, 3000), top_k=st.integers(1, 50))
def test_top_k_keeps_the_lowest_ids_in_a_wide_row(seed, vocab_size, top_k):
    """Wide rows are partitioned, not sorted, and a partition hands out any of the equals."""
    row = np.random.default_rng(seed).integers(0, 4, vocab_size).astype(np.float64)
    in_order = sorted(range(vocab_size), key=lambda token_id: (-row[token_id], token_id))
    assert np.flatnonzero(keep_top_k(row, top_k) > -INF).tolist() == sorted(in_order[:top_k])


@pytest.mark.parametrize(
    ("top_p", "num_kept"), [(5e-324, 1), (0.0625, 1), (0.0626, 2), (0.5, 8), (0.9375, 15), (0.99, 16)]
)
def test_top_p_keeps_the_fewest_that_reach_it_and_the_lowest_ids_of_equals(top_p, num_kept):
    assert np.flatnonzero(np.isfinite(keep_top_p(np.zeros(16), top_p))).tolist() == list(range(num_kept))


def test_top_p_keeps_all_where_rounding_never_reaches_it():
    row = np.random.default_rng(0).normal(size=1000)
    assert np.isfinite(keep_top_p(row, 1 - 2**-53)).sum() >= 999
    assert np.isfinite(keep_top_p(np.zeros(1), 1 - 2**-53)).all()


def test_cuts_are_taken_in_their_order():
    """Top-p first would keep 0.4 and 0.3 for 0.5 as well; after top-k the first alone has 4/7."""
    row = np.log(row_of(0.4, 0.3, 0.2, 0.1))
    both = probabilities(row, context_of(SamplingParams(temperature=1.0, top_k=2, top_p=0.5)))
    np.testing.assert_allclose(both, [1, 0, 0, 0], atol=1e-12)
    late = probabilities(row, context_of(SamplingParams(temperature=1.0, top_k=2, top_p=0.6)))
    np.testing.assert_allclose(late, [4 / 7, 3 / 7, 0, 0], atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("position", [0, 3, 15, 16, 100, 4095])
def test_highest_token_id_refuses_nan_wherever_it_stands(dtype, position):
    row = np.zeros(4096, dtype=dtype)
    row[7] = INF
    row[position] = float("nan")
    with pytest.raises(InvariantError, match=f"hold NaN, first at token id {position} of 4096") as caught:
        highest_token_id(row)
    assert caught.value.token_id == position


@given(row=rows, dtype=st.sampled_from([np.float32, np.float64]), num_infinite=st.integers(0, 2))
@example(row=[0.0], dtype=np.float32, num_infinite=0)
def test_highest_token_id_is_the_lowest_among_equals(row, dtype, num_infinite):
    row = row + [INF] * num_infinite
    assert highest_token_id(np.array(row, dtype=dtype)) == row.index(max(row))


@given(
    vocab_size=st.integers(1, 5000),
    dtype=st.sampled_from([np.float32, np.float64]),
    positions=st.sets(st.integers(0, 4999), min_size=1, max_size=4),
)
def test_highest_token_id_is_the_lowest_among_equals_of_a_wide_row(vocab_size, dtype, positions):
    """Wide rows go through vectorised code, which could hand out another of the equals."""
    places = sorted({position % vocab_size for position in positions})
    row = np.zeros(vocab_size, dtype=dtype)
    row[places] = 3.0
    assert highest_token_id(row) == places[0]


@pytest.mark.parametrize("params", [{}, {"presence_penalty": 1.0}, {"temperature": 1.0}], ids=str)
def test_a_row_without_any_chance_is_refused(params):
    with pytest.raises(InvariantError, match="all 5 logits of a row are minus infinity"):
        probabilities(np.full(5, -INF), context_of(SamplingParams(**params)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_masked_as_a_whole_is_refused(temperature):
    params = SamplingParams(temperature=temperature, min_tokens=1, stop_token_ids=[0, 1])
    with pytest.raises(NoTokenLeftError, match=r"none of the 3 tokens is left.*min_tokens=1") as caught:
        probabilities(row_of(1, 2, 3), context_of(params, eos={2}))
    assert (caught.value.vocab_size, caught.value.min_tokens) == (3, 1)


@pytest.mark.parametrize("cut", [{}, {"top_k": 3}, {"min_p": 0.5}, {"repetition_penalty": 1e-320}], ids=str)
def test_infinite_logits_share_everything(cut):
    context = context_of(SamplingParams(temperature=0.7, **cut), prompt=[1], output=[4])
    assert probabilities(row_of(1e300, INF, -INF, 5, INF), context).tolist() == [0, 0.5, 0, 0, 0.5]


def test_softmax_takes_logits_that_would_overflow():
    assert softmax(row_of(1e308, -1e308, 1e308)).tolist() == [0.5, 0, 0.5]

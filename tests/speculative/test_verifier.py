"""What comes out of a verification: the very tokens without a guess where guesses are certain, else their exact law.

Laws are computed in closed form first. What ends there, the draws themselves, is counted: one in a million runs would
fail by chance, and wrong rules are rejected with more than 99 in 100. Seeds are fixed.
"""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from oracle.chain_runner import VOCAB_SIZE, chain, chain_logits
from refinfer.errors import InvariantError
from refinfer.sampling import SampleContext, SamplingParams, probabilities, sample_token
from refinfer.sampling.sampler import draw_uniform, inverse_cdf_token_id
from refinfer.speculative import Draft, verify
from refinfer.speculative.verifier import ACCEPTANCE_DRAW, DRAFT_DRAW, RESIDUAL_DRAW, acceptance, residual

pytestmark = pytest.mark.without_shape_checks

VERIFY = import_module("refinfer.speculative.verifier")
"""The module: in its package the function has its name."""

EOS = frozenset({7})
HIGHEST_DRAW = 1 - 2**-53

uniforms = st.sampled_from([0.0, 2**-53, 0.5, HIGHEST_DRAW]) | st.integers(0, 2**53 - 1).map(lambda bits: bits / 2**53)
seeds = st.integers(0, 2**64 - 1)
certain_params = st.builds(
    SamplingParams,
    max_tokens=st.none(),
    temperature=st.sampled_from([0.0, 0.0, 1.0, 8.0]),
    top_k=st.sampled_from([0, 3]),
    top_p=st.sampled_from([1.0, 0.9]),
    repetition_penalty=st.sampled_from([1.0, 1.4]),
    presence_penalty=st.sampled_from([0.0, 2.0]),
    frequency_penalty=st.sampled_from([0.0, 1.5]),
    logit_bias=st.none() | st.dictionaries(st.integers(0, VOCAB_SIZE - 1), st.floats(-9, 9), max_size=3),
    min_tokens=st.sampled_from([0, 5]),
    stop_token_ids=st.sampled_from([(), (2, 3)]),
)


def logits_after(token_ids, num_rows):
    """The logits after the last tokens: a pure function of all tokens up to each."""
    return chain_logits(chain(token_ids)[-num_rows:])


def one_by_one(prompt, params, seed, num_tokens):
    """What comes without a guess."""
    output: list[int] = []
    for _ in range(num_tokens):
        context = SampleContext(params, seed, 1, prompt, output, EOS)
        output = [*output, sample_token(logits_after([*prompt, *output], 1)[0], context)]
    return output


@given(
    prompt=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=4),
    params=certain_params,
    seed=seeds,
    guesses=st.lists(st.sampled_from(["right", "right", "wrong", "any"]), min_size=1, max_size=12),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5),
)
def test_certain_guesses_do_not_change_token_ids(prompt, params, seed, guesses, lengths):
    """Nor does it matter how good they are, or how many: that decides how many tokens come at once."""
    expected = one_by_one(prompt, params, seed, 24)
    output: list[int] = []
    num_steps = 0
    while len(output) < 16:
        num_guessed = lengths[num_steps % len(lengths)]
        num_steps += 1
        right = expected[len(output) : len(output) + num_guessed]
        kinds = [guesses[(len(output) + place) % len(guesses)] for place in range(num_guessed)]
        change_by_kind = {"right": 0, "wrong": 1, "any": num_steps % VOCAB_SIZE}
        guess = [(token_id + change_by_kind[kind]) % VOCAB_SIZE for token_id, kind in zip(right, kinds, strict=True)]
        num_right = next((place for place in range(num_guessed) if guess[place] != right[place]), num_guessed)
        logits = list(logits_after([*prompt, *output, *guess], num_guessed + 1))
        found = verify(logits, Draft(tuple(guess)), SampleContext(params, seed, 1, prompt, output, EOS))
        assert len(found) == num_right + 1
        output = [*output, *found]
    assert output == expected[: len(output)]


def test_verify_refuses_logits_that_are_not_numbers_only_where_a_guess_led_to_them():
    rows = [np.array([0.0, 1.0]), np.array([np.nan, 1.0])]
    context = SampleContext(SamplingParams(), 0, 0, (0,), [], frozenset())
    assert verify(rows, Draft((0,)), context) == [1]
    assert verify(rows, Draft((1,)), context) == [1], "the guess that stayed is emitted, and the next step raises"
    with pytest.raises(InvariantError, match="hold NaN"):
        verify(rows[::-1], Draft((1,)), context)


# Laws in closed form


@st.composite
def pairs_of_distributions(draw):
    """Two distributions over one vocabulary: with tokens that one or both never give, near ones and equal ones."""
    vocab_size = draw(st.integers(2, 8))
    weight = st.sampled_from([0.0, 0.0, 1.0, 1e-9, 3.0]) | st.floats(0.01, 1)
    row = st.lists(weight, min_size=vocab_size, max_size=vocab_size).filter(lambda weights: sum(weights) > 0)
    one_hot = st.integers(0, vocab_size - 1).map(lambda token_id: np.eye(vocab_size)[token_id].tolist())
    target, drafted = (np.array(draw(row | one_hot)) for _ in range(2))
    if draw(st.integers(0, 9)) == 0:
        drafted = target
    return target / target.sum(), drafted / drafted.sum()


def law_of_one(target, drafted, *, accept=acceptance, leave=residual):
    """The distribution of the token that comes out where one was drawn from another distribution."""
    law = np.zeros(len(target))
    for token_id in np.flatnonzero(drafted):
        stays = accept(target, drafted, token_id)
        law[token_id] += drafted[token_id] * stays
        left = leave(target, drafted)
        if stays < 1 and left.any():
            law += drafted[token_id] * (1 - stays) * left / left.sum()
    return law


@given(pair=pairs_of_distributions())
def test_law_of_one_token_is_the_targets(pair):
    target, drafted = pair
    np.testing.assert_allclose(law_of_one(target, drafted), target, rtol=0, atol=1e-12)


@given(pair=pairs_of_distributions())
def test_certain_guess_is_one_that_was_drawn_with_probability_one(pair):
    """The two rules of the module have one law: a guess that could not be another stays as often as the target says."""
    target, _ = pair
    for token_id in range(len(target)):
        certain = np.eye(len(target))[token_id]
        assert acceptance(target, certain, token_id) == target[token_id]
        np.testing.assert_allclose(law_of_one(target, certain), target, rtol=0, atol=1e-12)


def law_of_two(targets, drafts, num_guessed, **rules):
    """The distribution of the first two tokens, (vocab, vocab), where one or two were guessed.

    Args:
        targets: The target's distribution of the first token, and that of the second after each first one.
        drafts: The same of what guesses.
        num_guessed: How many are guessed; after one that stays comes the bonus token.
        rules: Other rules than the right ones.
    """
    (first, seconds), (first_draft, second_drafts) = targets, drafts
    accept, leave = rules.get("accept", acceptance), rules.get("leave", residual)
    law = np.zeros((len(first), len(first)))
    for token_id in np.flatnonzero(first_draft):
        stays = accept(first, first_draft, token_id)
        second = seconds[token_id]
        law[token_id] += (
            first_draft[token_id]
            * stays
            * (law_of_one(second, second_drafts[token_id], **rules) if num_guessed == 2 else second)
        )
        left = leave(first, first_draft)
        if stays < 1 and left.any():  # the next step goes on after the token that took its place
            law += first_draft[token_id] * (1 - stays) * (left / left.sum())[:, None] * seconds
    return law


@given(data=st.data(), num_guessed=st.sampled_from([1, 2]))
def test_law_of_two_tokens_is_the_targets(data, num_guessed):
    first, first_draft = data.draw(pairs_of_distributions())
    size = len(first)
    pairs = [
        data.draw(pairs_of_distributions().filter(lambda pair: len(pair[0]) >= 2).map(lambda pair: fit(pair, size)))
        for _ in range(size)
    ]
    seconds, second_drafts = (np.stack(rows) for rows in zip(*pairs, strict=True))
    found = law_of_two((first, seconds), (first_draft, second_drafts), num_guessed)
    np.testing.assert_allclose(found, first[:, None] * seconds, rtol=0, atol=1e-12)


def fit(pair, size):
    """Distributions of another size, over and over or cut, with something left."""
    rows = [np.resize(row, size) for row in pair]
    return [row / row.sum() if row.any() else np.full(size, 1 / size) for row in rows]


# The verifier against its rules


def verify_one(target, drafted, guess, *, accept_at, replace_at=0.5):
    """Verifies one guess where distributions and random numbers are said outright; what comes after it is token 99."""
    draws = {ACCEPTANCE_DRAW: accept_at, RESIDUAL_DRAW: replace_at}
    context = SampleContext(SamplingParams(temperature=1.0), 5, 2, (1,), [0, 0], frozenset())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VERIFY, "probabilities", lambda row, _: row)
        patch.setattr(VERIFY, "sample_token", lambda row, _: int(row[0]))
        patch.setattr(VERIFY, "draw_uniform", lambda *names: draws[names[3]])
        return verify([target, np.array([99.0])], Draft((guess,), (drafted,)), context)


@given(pair=pairs_of_distributions(), data=st.data(), accept_at=uniforms, replace_at=uniforms)
def test_drawn_guess_stays_or_is_replaced_as_its_random_numbers_say(pair, data, accept_at, replace_at):
    target, drafted = pair
    guess = data.draw(st.sampled_from(np.flatnonzero(drafted).tolist()))
    found = verify_one(target, drafted, guess, accept_at=accept_at, replace_at=replace_at)
    if accept_at < target[guess] / drafted[guess]:
        assert found == [guess, 99]
        return
    left = [max(own - other, 0.0) for own, other in zip(target.tolist(), drafted.tolist(), strict=True)]
    assume(sum(left) > 1e-12)  # else rounding decides
    borders = np.cumsum(left)
    assume(np.abs(borders - replace_at * borders[-1]).min() > 1e-15 or replace_at == 0)
    assert found == [int(np.flatnonzero(borders > replace_at * borders[-1])[0])]
    assert found != [guess]


@given(pair=pairs_of_distributions(), data=st.data(), accept_at=uniforms, replace_at=uniforms)
def test_token_without_a_chance_is_never_emitted(pair, data, accept_at, replace_at):
    target, drafted = pair
    guess = data.draw(st.sampled_from(np.flatnonzero(drafted).tolist()))
    found = verify_one(target, drafted, guess, accept_at=accept_at, replace_at=replace_at)
    assert target[found[0]] > 0


@pytest.mark.parametrize("replace_at", [0.0, 0.7, HIGHEST_DRAW])
def test_regression_guess_rejected_by_rounding_leaves_the_target_to_draw_from(replace_at):
    """Two distributions that differ in the last bit: nothing is left over, and token 0 has no chance."""
    drafted = np.array([0.0, 0.5, 0.5])
    target = np.array([0.0, 0.5, np.nextafter(0.5, 0)])
    assert not residual(target, drafted).any()
    found = verify_one(target, drafted, 2, accept_at=HIGHEST_DRAW, replace_at=replace_at)
    assert found == ([1] if replace_at == 0.0 else [2, 99])


def test_acceptance_falls_at_the_very_border():
    target, drafted = np.array([0.125, 0.875]), np.array([0.5, 0.5])
    assert verify_one(target, drafted, 0, accept_at=0.25 - 2**-53) == [0, 99]
    assert verify_one(target, drafted, 0, accept_at=0.25) == [1]


def test_every_draw_has_a_random_number_of_its_own(monkeypatch):
    """Else a guess would be accepted by the number that it was drawn with."""
    assert len({0, DRAFT_DRAW, ACCEPTANCE_DRAW, RESIDUAL_DRAW}) == 4
    drawn = []

    def draw(*names):
        drawn.append(names)
        return 0.9999

    monkeypatch.setattr(VERIFY, "draw_uniform", draw)
    params = SamplingParams(temperature=1.0)
    never, always = np.array([-np.inf, 0.0]), np.array([0.0, -np.inf])
    half = np.array([0.5, 0.5])
    context = SampleContext(params, 5, 2, (1,), [0, 0], frozenset())
    assert verify([always, never, always], Draft((0, 0), (half, half)), context) == [0, 1]
    assert drawn == [(5, 2, 2, ACCEPTANCE_DRAW), (5, 2, 3, ACCEPTANCE_DRAW), (5, 2, 3, RESIDUAL_DRAW)]


# Draws that are counted

NUM_DRAWS = 1500
SIZE = 4
TARGET_ROWS = np.array(
    [
        [1.0, 0.0, -0.5, -np.inf],
        [0.2, 0.4, 1.2, -1.0],
        [0.0, 0.0, 2.0, 0.5],
        [1.5, 0.3, -0.3, 0.8],
        [0.0, 1.0, 0.5, 0.2],
    ]
)
"""The target's logits: of the first token, then of the second after each first one."""

DRAFT_ROWS = {
    "opposite": -np.where(np.isfinite(TARGET_ROWS), TARGET_ROWS, -1.0),
    "flat": np.zeros((SIZE + 1, SIZE)),
    "near": np.where(np.isfinite(TARGET_ROWS), TARGET_ROWS, -2.0) + 0.3 * np.eye(SIZE + 1, SIZE),
    "equal": TARGET_ROWS,
    "narrow": np.where(np.arange(SIZE) == 0, 3.0, np.zeros((SIZE + 1, SIZE))),
    "blind": np.where(np.arange(SIZE) == 0, -np.inf, np.zeros((SIZE + 1, SIZE))),
}
PARAMS = {
    "plain": SamplingParams(temperature=1.0),
    "cold": SamplingParams(temperature=0.6, top_k=3, presence_penalty=0.4),
}


def context_of(params, index, output, seed=3):
    return SampleContext(params, seed, index, (0,), output, frozenset())


def distributions(rows, params):
    """The distributions of the first token and of the second after each first one."""
    seconds = [probabilities(rows[1 + first], context_of(params, 0, [first])) for first in range(SIZE)]
    return probabilities(rows[0], context_of(params, 0, [])), np.stack(seconds)


def two_tokens(draft_rows, params, index, num_guessed):
    """The first two tokens of a sample, guessed as a draft model does, verified, and gone on with where one came."""
    tokens: list[int] = []
    shares = []
    for place in range(num_guessed):
        row = draft_rows[0 if place == 0 else 1 + tokens[-1]]
        shares.append(probabilities(row, context_of(params, index, tokens)))
        tokens = [*tokens, inverse_cdf_token_id(shares[-1], draw_uniform(3, index, place, DRAFT_DRAW))]
    logits = [TARGET_ROWS[0], *(TARGET_ROWS[1 + token_id] for token_id in tokens)]
    found = verify(logits, Draft(tuple(tokens), tuple(shares)), context_of(params, index, []))
    if len(found) == 1:
        found += [sample_token(TARGET_ROWS[1 + found[0]], context_of(params, index, found))]
    return found[:2]


def counts_of(draft_rows, params, num_guessed):
    counts = np.zeros((SIZE, SIZE))
    for index in range(NUM_DRAWS):
        counts[tuple(two_tokens(draft_rows, params, index, num_guessed))] += 1
    return counts


def expected_counts(params):
    first, seconds = distributions(TARGET_ROWS, params)
    return first[:, None] * seconds * NUM_DRAWS


def test_verified_tokens_follow_the_target(g_test_p_value, rejected):
    p_values = {
        (draft, name, num_guessed): g_test_p_value(
            counts_of(rows, params, num_guessed).ravel(), expected_counts(params).ravel()
        )
        for draft, rows in DRAFT_ROWS.items()
        for (name, params), num_guessed in zip(PARAMS.items(), (2, 1), strict=True)
    }
    assert rejected(p_values) == []
    assert np.median(list(p_values.values())) > 0.01


def leaves_the_target(target, _):
    """Draws from all of the target where a guess was rejected."""
    return target


def accepts_too_seldom(target, drafted, token_id):
    """Takes the square of the ratio."""
    return acceptance(target, drafted, token_id) ** 2


def accepts_always(target, *_):
    """Leaves every guess that the target gives a chance."""
    return 1.0 if len(target) else 0.0


WRONG_RULES: dict[str, dict[str, Any]] = {
    "residual": {"leave": leaves_the_target},
    "acceptance": {"accept": accepts_too_seldom},
    "always": {"accept": accepts_always},
}


@pytest.mark.parametrize("wrong", WRONG_RULES)
def test_a_verifier_with_a_wrong_rule_is_rejected(monkeypatch, g_test_p_value, rejected, wrong):
    """With a power above 99 in 100, which follows from the wrong law; so it does not pass by chance."""
    rules, params = WRONG_RULES[wrong], PARAMS["plain"]
    targets, drafts = distributions(TARGET_ROWS, params), distributions(DRAFT_ROWS["opposite"], params)
    law, expected = law_of_two(targets, drafts, 2, **rules), expected_counts(params)
    may_be = expected > 0
    distance = ((law[may_be] * NUM_DRAWS - expected[may_be]) ** 2 / expected[may_be]).sum()
    border = stats.chi2.isf(1e-6, may_be.sum() - 1)
    assert stats.ncx2.sf(border, may_be.sum() - 1, distance) > 0.99
    for name, rule in rules.items():
        monkeypatch.setattr(VERIFY, {"leave": "residual", "accept": "acceptance"}[name], rule)
    counts = counts_of(DRAFT_ROWS["opposite"], params, 2)
    assert rejected({wrong: g_test_p_value(counts.ravel(), expected.ravel())}) == [wrong]
    np.testing.assert_allclose(counts / NUM_DRAWS, law, rtol=0, atol=0.04, err_msg="the law that the power is of")


@pytest.mark.parametrize(("shared", "other"), [("DRAFT_DRAW", "ACCEPTANCE_DRAW"), ("ACCEPTANCE_DRAW", "RESIDUAL_DRAW")])
def test_a_verifier_that_draws_one_number_twice_is_rejected(monkeypatch, g_test_p_value, rejected, shared, other):
    """A guess accepted by the number that it was drawn with, or replaced by the one that rejected it."""
    monkeypatch.setattr(VERIFY, other, getattr(VERIFY, shared))
    counts = counts_of(DRAFT_ROWS["narrow"], PARAMS["plain"], 1)
    p_value = g_test_p_value(counts.ravel(), expected_counts(PARAMS["plain"]).ravel())
    assert rejected({shared: p_value}) == [shared]

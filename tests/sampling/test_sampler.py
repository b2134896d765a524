"""The next token: greedy takes the lowest id among equals, and a draw depends on seed, answer and position alone."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from refinfer.errors import InvariantError
from refinfer.sampling import SampleContext, SamplingParams, effective_seed, sample_token
from refinfer.sampling.sampler import draw_uniform, inverse_cdf_token_id

WORD = 2**64 - 1

seeds = st.sampled_from([0, 1, WORD, WORD - 1, 2**53 + 1]) | st.integers(0, WORD)

BORDER = 1e-11
"""Where a draw falls this close to the border between two tokens, rounding may decide; few draws in 10^10 do."""


def philox_block(key, counter):
    """Ten rounds of Philox 4x64, from the paper: Salmon et al. 2011, section 3.2 and table 2."""
    low, high = key
    words = list(counter)
    for _ in range(10):
        first, second = words[0] * 0xD2E7470EE14C6C93, words[2] * 0xCA5A826395121157
        words = [(second >> 64) ^ words[1] ^ low, second & WORD, (first >> 64) ^ words[3] ^ high, first & WORD]
        low, high = (low + 0x9E3779B97F4A7C15) & WORD, (high + 0xBB67AE8584CAA73B) & WORD
    return words


def plain_uniform(seed, sample_index, position):
    """The first word of a block whose lowest counter word numpy has advanced to 1."""
    return (philox_block((seed, sample_index), (1, 0, 0, position))[0] >> 11) / 2**53


def context_of(params, *, seed=0, sample_index=0, prompt=(), output=(), eos=()):
    return SampleContext(params, seed, sample_index, tuple(prompt), list(output), frozenset(eos))


def test_plain_philox_gives_the_published_answer():
    """The first known answer that comes with Random123."""
    expected = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert philox_block((0, 0), (0, 0, 0, 0)) == expected


@given(seed=seeds, sample_index=st.integers(0, 2**40), position=st.integers(0, 2**40))
def test_draw_uniform_equals_the_plain_generator(seed, sample_index, position):
    assert draw_uniform(seed, sample_index, position) == plain_uniform(seed, sample_index, position)


def test_draws_of_neighbouring_seeds_answers_and_positions_all_differ():
    parts = [(0, 1, WORD, WORD - 1, 2**53, 2**53 + 1), (0, 1, 2), (0, 1, 2)]
    draws = {draw_uniform(seed, index, position) for seed in parts[0] for index in parts[1] for position in parts[2]}
    assert len(draws) == 6 * 3 * 3


@given(
    row=st.lists(st.integers(-8, 8).map(lambda value: value / 4), min_size=1, max_size=10),
    params=st.builds(
        SamplingParams,
        temperature=st.floats(0.1, 4),
        top_k=st.integers(0, 10),
        repetition_penalty=st.sampled_from([1.0, 1.5]),
    ),
    tokens=st.tuples(st.lists(st.integers(0, 9), max_size=4), st.lists(st.integers(0, 9), max_size=4)),
    seed=seeds,
    sample_index=st.integers(0, 3),
)
def test_sample_token_takes_the_share_that_the_draw_falls_in(
    plain_distribution, row, params, tokens, seed, sample_index
):
    prompt, output = ([token_id % len(row) for token_id in ids] for ids in tokens)
    shares = plain_distribution(row, params, prompt=prompt, output=output).row(len(row))
    uniform = plain_uniform(seed, sample_index, len(output))
    borders = [math.fsum(shares[: token_id + 1]) for token_id in range(len(row))]
    assume(all(abs(uniform - border) > BORDER for border in borders))
    expected = next(token_id for token_id, border in enumerate(borders) if uniform < border)
    context = context_of(params, seed=seed, sample_index=sample_index, prompt=prompt, output=output)
    assert sample_token(np.array(row, dtype=np.float32), context) == expected


@given(
    row=st.lists(st.integers(-4, 4), min_size=1, max_size=8),
    penalties=st.fixed_dictionaries({}, optional={"presence_penalty": st.just(1.5), "min_tokens": st.just(2)}),
    output=st.lists(st.integers(0, 7), max_size=3),
    seed=seeds,
)
def test_sample_token_at_temperature_zero_takes_the_lowest_id_of_the_highest(
    plain_distribution, row, penalties, output, seed
):
    output = [token_id % len(row) for token_id in output]
    params = SamplingParams(temperature=0.0, top_p=0.5, **penalties)
    (expected,) = plain_distribution(row, params, output=output).probability_by_token_id
    assert sample_token(np.array(row, dtype=np.float64), context_of(params, seed=seed, output=output)) == expected


@given(seed=seeds, output=st.lists(st.integers(0, 7), max_size=12), other=st.lists(st.integers(0, 7), max_size=12))
def test_earlier_tokens_do_not_change_what_a_position_draws(seed, output, other):
    """Nor does how many tokens were drawn before, in this request or in another."""
    row = np.linspace(-1, 1, 8)
    params = SamplingParams(temperature=1.0)
    num_tokens = min(len(output), len(other))
    one, two = (context_of(params, seed=seed, output=tokens[:num_tokens]) for tokens in (output, other))
    first = sample_token(row, one)
    for sample_index in range(3):
        sample_token(row, context_of(params, seed=seed + 1 & WORD, sample_index=sample_index))
    assert sample_token(row, two) == sample_token(row, one) == first


def test_answers_to_one_request_differ_and_repeat():
    row = np.zeros(16, dtype=np.float32)
    params = SamplingParams(temperature=1.0, n=4)

    def answers():
        contexts = [[context_of(params, seed=7, sample_index=i, output=[0] * t) for t in range(20)] for i in range(4)]
        return [tuple(sample_token(row, context) for context in answer) for answer in contexts]

    assert answers() == answers()
    assert len(set(answers())) == 4


@pytest.mark.parametrize("params", [{}, {"presence_penalty": 1.0}, {"temperature": 1.0}], ids=str)
def test_sample_token_refuses_nan(params):
    with pytest.raises(InvariantError, match="hold NaN, first at token id 2 of 3"):
        sample_token(np.array([1.0, 2.0, math.nan]), context_of(SamplingParams(**params)))


@given(
    weights=st.lists(st.sampled_from([0.0, 0.0, 5e-324, 1e-17, 1e-9, 0.1, 1.0]), min_size=1, max_size=12),
    uniform=st.sampled_from([0.0, 1 - 2**-53, 2**-53]) | st.integers(0, 2**53 - 1).map(lambda bits: bits / 2**53),
)
@example(weights=[5e-324, 0.0], uniform=1 - 2**-53)
@example(weights=[0.0, 0.1, 0.2, 0.0], uniform=1 - 2**-53)
@example(weights=[0.7] + [0.1] * 3 + [0.0], uniform=1 - 2**-53)
def test_a_token_of_probability_zero_is_never_given(weights, uniform):
    assume(sum(weights) > 0)
    assert weights[inverse_cdf_token_id(np.array(weights), uniform)] > 0


def test_shares_lie_in_the_order_of_ids():
    shares = np.array([0.25, 0.0, 0.5, 0.25])
    draws = [0.0, 0.249, 0.25, 0.5, 0.749, 0.75, 0.999]
    assert [inverse_cdf_token_id(shares, uniform) for uniform in draws] == [0, 0, 2, 2, 2, 3, 3]


def test_effective_seed_is_the_one_given_or_fresh():
    assert effective_seed(SamplingParams(seed=0)) == 0
    fresh = {effective_seed(SamplingParams()) for _ in range(4)}
    assert len(fresh) == 4
    assert max(fresh) <= WORD

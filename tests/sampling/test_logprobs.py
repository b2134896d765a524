"""Log-probabilities of the model's own distribution, and their ranks."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refinfer.errors import InvariantError, TokenIdError
from refinfer.sampling import TokenLogprob, log_softmax, token_logprobs

INF = float("inf")

values = st.integers(-4, 4).map(float) | st.floats(-80, 80, width=32) | st.just(-INF)
rows = st.lists(values, min_size=1, max_size=12).filter(lambda row: max(row) > -INF)


def plain_logprob(row, token_id):
    """Counted from the token's own logit, so that nothing is taken from the highest."""
    if row[token_id] == -INF:
        return -INF
    return -math.log(math.fsum(math.exp(value - row[token_id]) for value in row))


@given(row=rows, dtype=st.sampled_from([np.float32, np.float64]))
def test_log_softmax_equals_the_plain_computation(row, dtype):
    expected = [plain_logprob(row, token_id) for token_id in range(len(row))]
    found = log_softmax(np.array(row, dtype=dtype))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@given(row=rows, num_logprobs=st.integers(0, 14), data=st.data())
@example(row=[1.0, 1.0, 1.0], num_logprobs=2, data=None)
def test_token_logprobs_lists_the_token_and_then_the_likeliest(row, num_logprobs, data):
    token_id = len(row) - 1 if data is None else data.draw(st.integers(0, len(row) - 1))
    found = token_logprobs(np.array(row, dtype=np.float32), token_id, num_logprobs)
    in_order = sorted(range(len(row)), key=lambda other: (-row[other], other))[:num_logprobs]
    assert list(found) == [token_id, *(other for other in in_order if other != token_id)]
    for listed, entry in found.items():
        assert entry.rank == 1 + sum(value > row[listed] for value in row)
        assert entry.logprob == pytest.approx(plain_logprob(row, listed), rel=1e-12, abs=1e-12)


def test_ranks_come_from_logits_that_rounding_makes_equally_likely():
    row = np.array([0.0, 5e-324, -1e-300, 0.0])
    ranks = {token_id: entry.rank for token_id, entry in token_logprobs(row, 2, 4).items()}
    assert ranks == {2: 4, 1: 1, 0: 2, 3: 2}


def test_token_logprobs_without_alternatives_gives_the_token_alone():
    assert token_logprobs(np.zeros(4), 2, 0) == {2: TokenLogprob(-math.log(4), 1)}


def test_infinite_logits_share_everything():
    found = token_logprobs(np.array([INF, 3, INF]), 1, 2)
    assert found == {
        1: TokenLogprob(-INF, 3),
        0: TokenLogprob(-math.log(2), 1),
        2: TokenLogprob(-math.log(2), 1),
    }


@pytest.mark.parametrize("token_id", [-1, 4])
def test_token_logprobs_refuses_a_token_outside_the_vocabulary(token_id):
    with pytest.raises(TokenIdError, match=f"token id {token_id} has no logit; the token ids of this row end at 3"):
        token_logprobs(np.zeros(4), token_id, 1)


@pytest.mark.parametrize("row", [[0.0, math.nan], [-INF, -INF]], ids=str)
def test_log_softmax_refuses_what_is_no_distribution(row):
    with pytest.raises(InvariantError):
        log_softmax(np.array(row))

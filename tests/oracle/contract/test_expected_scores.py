"""What is due is exact where nothing is near, and a range where rounding decides who shares the probability."""

import numpy as np
import pytest

from oracle.contract.expected_scores import exactly, log_softmax, shared_by

BOUND = 0.01
SHARES = np.array([0.5, 0.3, 0.15, 0.05])
NEVER = -np.inf


def kept(*token_ids):
    return np.isin(np.arange(4), token_ids)


def gap_of(expected, token_id, value):
    fault = expected.fault_of("logprob", token_id, value)
    return None if fault is None else fault[1]


def test_log_softmax_gives_logarithms_of_shares():
    assert np.exp(log_softmax(np.log(SHARES) + 700.0)) == pytest.approx(SHARES)
    assert log_softmax(np.array([0.0, NEVER, 0.0])).tolist() == pytest.approx([np.log(0.5), NEVER, np.log(0.5)])


@pytest.mark.parametrize(
    ("value", "gap"),
    [(-1.0, None), (-1.0 + BOUND / 2, None), (-1.0 - 2 * BOUND, 2 * BOUND), (3.0, 4.0), (NEVER, np.inf)],
)
def test_score_is_at_fault_beyond_the_bound(value, gap):
    fault = exactly(np.array([0.0, -1.0]), BOUND).fault_of("logprob", 1, value)
    if gap is None:
        assert fault is None
    else:
        assert fault is not None
        message, found, bound = fault
        assert message == f"logprob is {value:.7g}, and -1 was due; rounding explains 0.01"
        assert found == pytest.approx(gap)
        assert bound == BOUND


def test_barred_token_has_no_score():
    expected = exactly(np.array([0.0, NEVER]), BOUND)
    assert expected.fault_of("logprob", 1, NEVER) is None
    assert gap_of(expected, 1, -3.0) == np.inf
    assert expected.may_be_absent(1, -1e9)
    assert not expected.may_be_absent(1, -3.0)
    assert not expected.may_be_absent(0, -1e9)


def test_tokens_that_are_kept_share_the_probability():
    expected = shared_by(np.log(SHARES), kept(0, 1), kept(0, 1), BOUND)
    due = np.log([0.625, 0.375])
    for token_id in (0, 1):
        assert expected.fault_of("logprob", token_id, due[token_id]) is None
        assert expected.fault_of("logprob", token_id, due[token_id] + 2 * BOUND) is not None
    assert gap_of(expected, 2, -1.0) == np.inf


def test_open_token_makes_a_range_of_what_is_due():
    """The third may share or not: the first then has 0.53 or 0.63."""
    expected = shared_by(np.log(SHARES), kept(0, 1, 2), kept(0, 1), BOUND)
    for share in (0.5 / 0.95, 0.57, 0.5 / 0.8):
        assert expected.fault_of("logprob", 0, np.log(share)) is None
    for share in (0.5, 0.65):
        assert expected.fault_of("logprob", 0, np.log(share)) is not None
    assert expected.fault_of("logprob", 2, np.log(0.15 / 0.95)) is None
    assert expected.fault_of("logprob", 2, np.log(0.15)) is not None
    assert expected.may_be_absent(2, NEVER)


def test_only_one_of_tied_tokens_may_have_all_of_it():
    scores = np.array([1.0, 1.0, NEVER, NEVER])
    expected = shared_by(scores, kept(0, 1), kept(), BOUND)
    for token_id in (0, 1):
        assert expected.fault_of("logprob", token_id, 0.0) is None
        assert expected.fault_of("logprob", token_id, np.log(0.5)) is None
        assert expected.fault_of("logprob", token_id, np.log(0.4)) is not None

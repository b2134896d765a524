"""Every comparison both ways: what is equal passes, and each single difference is seen at its place."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from oracle.compare import TokenVerdict, as_rows, compare_logits, judge_tokens, verdict_of
from oracle.errors import LogitsMismatch, TokenMismatch

ROWS = np.array([[1.0, 2.0, 4.0], [8.0, 3.0, 5.0], [0.5, 9.0, 7.0]])
BOUND = 0.25
PLACES = [(row, column) for row in range(3) for column in range(3)]


@st.composite
def logit_rows(draw, max_rows=5):
    """Draws logits whose values lie at least 1 apart within a row, so that only what a test plants is a tie."""
    num_rows, vocab_size = draw(st.integers(1, max_rows)), draw(st.integers(2, 7))
    rows = [draw(st.permutations(range(vocab_size))) for _ in range(num_rows)]
    return np.array(rows, dtype=np.float64)


def changed(rows, row, column, value):
    """A copy with one other value."""
    copy = rows.copy()
    copy[row, column] = value
    return copy


@given(rows=logit_rows(), bound=st.sampled_from([0.0, 1e-10, 0.5, float("inf")]))
def test_equal_logits_pass_every_bound(rows, bound):
    assert compare_logits(rows, rows.copy(), bound, "x") == 0.0


@pytest.mark.parametrize(("row", "column"), PLACES)
@pytest.mark.parametrize("sign", [1, -1])
def test_compare_logits_names_row_and_token_of_a_difference(row, column, sign):
    subject = changed(ROWS, row, column, ROWS[row, column] + sign * 0.5)
    with pytest.raises(LogitsMismatch, match=f"row {row} of 3, token id {column}") as caught:
        compare_logits(subject, ROWS, BOUND, "x")
    assert (caught.value.row, caught.value.token_id, caught.value.largest) == (row, column, 0.5)


@pytest.mark.parametrize("bound", [0.25, 0.26, 1.0])
def test_compare_logits_gives_the_difference_that_the_bound_permits(bound):
    assert compare_logits(changed(ROWS, 1, 1, 3.25), ROWS, bound, "x") == 0.25


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-30, 1e30])
def test_compare_logits_with_bound_zero_sees_the_last_bit(scale):
    expected = ROWS * scale
    subject = changed(expected, 2, 0, np.nextafter(expected[2, 0], np.inf))
    with pytest.raises(LogitsMismatch, match="row 2 of 3, token id 0"):
        compare_logits(subject, expected, 0.0, "x")


def test_compare_logits_names_the_first_row_over_the_bound_and_the_largest_difference_of_all():
    subject = changed(changed(changed(ROWS, 0, 0, 1.1), 1, 2, 5.5), 2, 1, 12.0)
    with pytest.raises(LogitsMismatch) as caught:
        compare_logits(subject, ROWS, BOUND, "x")
    assert (caught.value.row, caught.value.token_id, caught.value.largest) == (1, 2, 3.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("bound", [0.0, 1.0, float("inf")])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (1, 2), (2, 1)])
def test_compare_logits_refuses_a_value_that_is_not_finite_on_either_side(value, bound, row, column):
    broken = changed(ROWS, row, column, value)
    with pytest.raises(LogitsMismatch, match=f"x: row {row} holds values that are not finite"):
        compare_logits(broken, ROWS, bound, "x")
    with pytest.raises(LogitsMismatch, match=f"row {row} of what is expected"):
        compare_logits(ROWS, broken, bound, "x")
    with pytest.raises(LogitsMismatch, match=f"row {row}"):
        compare_logits(broken, broken, bound, "x")


@pytest.mark.parametrize("subject", [ROWS[:2], ROWS[:, :2], ROWS[:0], np.vstack([ROWS, ROWS[-1:]])])
def test_compare_logits_refuses_another_shape(subject):
    with pytest.raises(LogitsMismatch, match="shape"):
        compare_logits(subject, ROWS, float("inf"), "x")
    with pytest.raises(LogitsMismatch, match="shape"):
        compare_logits(ROWS, subject, float("inf"), "x")


def test_compare_logits_refuses_a_bound_that_is_no_number():
    with pytest.raises(LogitsMismatch, match="bound"):
        compare_logits(ROWS, ROWS, float("nan"), "x")


def test_compare_logits_refuses_to_pass_without_a_single_value():
    with pytest.raises(LogitsMismatch, match="nothing"):
        compare_logits(ROWS[:0], ROWS[:0], 0.0, "x")


@given(rows=logit_rows(), data=st.data())
def test_compare_logits_sees_each_exchange_of_rows(rows, data):
    first = data.draw(st.integers(0, len(rows) - 1), label="first")
    second = data.draw(st.integers(0, len(rows) - 1), label="second")
    assume((rows[first] != rows[second]).any())
    order = list(range(len(rows)))
    order[first], order[second] = second, first
    with pytest.raises(LogitsMismatch) as caught:
        compare_logits(rows[order], rows, 0.5, "x")
    assert caught.value.row == min(first, second)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_as_rows_keeps_every_value_of_every_dtype(dtype):
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    rows = as_rows(logits)
    assert rows.dtype == np.float64
    assert rows.tolist() == logits.tolist()


def test_as_rows_widens_arrays_too():
    rows = as_rows(ROWS.astype(np.float32))
    assert rows.dtype == np.float64
    assert (rows == ROWS).all()


def greedy(rows):
    """The greedy choice of each row, the lowest id among equals."""
    return tuple(int(token_id) for token_id in rows.argmax(axis=1))


@given(rows=logit_rows())
def test_greedy_tokens_of_equal_logits_are_equal(rows):
    judgement = judge_tokens(greedy(rows), rows, rows, 0.0, "x")
    assert (judgement.num_positions, judgement.num_exact_ties, judgement.num_near_ties) == (len(rows), 0, 0)
    assert judgement.smallest_margin == 1.0


@given(rows=logit_rows(), data=st.data())
def test_judge_tokens_names_the_position_of_every_changed_token(rows, data):
    row = data.draw(st.integers(0, len(rows) - 1), label="row")
    token_ids = list(greedy(rows))
    token_ids[row] = data.draw(st.integers(0, rows.shape[1] - 1).filter(lambda token_id: token_id != token_ids[row]))
    with pytest.raises(TokenMismatch, match=f"output position {row}:") as caught:
        judge_tokens(tuple(token_ids), rows, rows, 0.4, "x")
    assert (caught.value.row, caught.value.token_id, caught.value.expected) == (row, token_ids[row], rows[row].argmax())


@pytest.mark.parametrize("token_id", [-1, 3, 1000])
def test_judge_tokens_refuses_a_token_outside_the_vocabulary(token_id):
    with pytest.raises(TokenMismatch, match=f"token {token_id} "):
        judge_tokens((2, token_id, 1), ROWS, ROWS, BOUND, "x")


@pytest.mark.parametrize("token_ids", [(), (2, 0), (2, 0, 1, 1)])
def test_judge_tokens_refuses_another_number_of_tokens_than_of_rows(token_ids):
    with pytest.raises(TokenMismatch, match=f"{len(token_ids)} tokens"):
        judge_tokens(token_ids, ROWS, ROWS, BOUND, "x")


def test_judge_tokens_refuses_a_referee_of_another_shape():
    with pytest.raises(TokenMismatch, match="rows"):
        judge_tokens((2, 0, 1), ROWS, ROWS[:2], BOUND, "x")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("row", [0, 2])
def test_judge_tokens_refuses_a_row_that_is_not_finite_on_either_side(value, row):
    broken = changed(ROWS, row, 0, value)
    with pytest.raises(TokenMismatch, match=f"row {row}"):
        judge_tokens(greedy(broken), broken, ROWS, float("inf"), "x")
    with pytest.raises(TokenMismatch, match=f"row {row}"):
        judge_tokens(greedy(ROWS), ROWS, broken, BOUND, "x")


def test_exact_tie_goes_to_the_lowest_id_and_is_counted():
    tied = np.array([[1.0, 3.0, 3.0, 0.0]])
    judgement = judge_tokens((1,), tied, tied, 0.0, "x")
    assert (judgement.num_exact_ties, judgement.num_near_ties, judgement.smallest_margin) == (1, 0, 0.0)


def test_judge_tokens_refuses_the_higher_id_of_an_exact_tie():
    """The subject ties as the referee does, so its own rule for ties is wrong."""
    tied = np.array([[1.0, 3.0, 3.0, 0.0]])
    with pytest.raises(TokenMismatch, match="token 2 instead of 1"):
        judge_tokens((2,), tied, tied, BOUND, "x")


@pytest.mark.parametrize("gap", [0.0, 0.25, 0.5])
def test_near_tie_within_twice_the_bound_passes_and_is_counted(gap):
    referee = np.array([[0.0, 2.0 + gap, 2.0]])
    own = np.array([[0.0, 2.0, 2.1]])
    judgement = judge_tokens((2,), own, referee, BOUND, "x")
    assert (judgement.num_near_ties, judgement.num_exact_ties, judgement.num_positions) == (1, 0, 1)


def test_judge_tokens_refuses_a_gap_beyond_twice_the_bound():
    referee = np.array([[0.0, 2.0 + np.nextafter(0.5, 1) + 1e-9, 2.0]])
    own = np.array([[0.0, 2.0, 2.1]])
    with pytest.raises(TokenMismatch, match=r"a near tie would lie within 0\.5"):
        judge_tokens((2,), own, referee, BOUND, "x")


def test_no_near_tie_excuses_a_token_that_the_subject_itself_scores_lower():
    """Both tokens are the referee's within the bound; the subject preferred one and emitted the other."""
    referee = np.array([[0.0, 2.2, 2.0]])
    own = np.array([[0.0, 2.0, 2.1]])
    with pytest.raises(TokenMismatch, match="the subject's own best is 2"):
        judge_tokens((1,), own, referee, BOUND, "x")


def test_judging_goes_on_after_a_near_tie():
    referee = np.array([[0.0, 2.2, 2.0], [5.0, 1.0, 0.0]])
    own = np.array([[0.0, 2.0, 2.1], [1.0, 5.0, 0.0]])
    with pytest.raises(TokenMismatch, match="output position 1:"):
        judge_tokens((2, 1), own, referee, BOUND, "x")


def test_smallest_margin_is_that_of_the_closest_position():
    judgement = judge_tokens(greedy(ROWS), ROWS, ROWS, 0.0, "x")
    assert judgement.smallest_margin == 2.0


def test_vocabulary_of_one_token_has_no_margin():
    judgement = judge_tokens((0,), np.zeros((1, 1)), np.zeros((1, 1)), 0.0, "x")
    assert judgement.smallest_margin == float("inf")


@pytest.mark.parametrize(
    ("token_id", "row", "verdict"),
    [
        (1, [0.0, 3.0, 1.0], TokenVerdict.EQUAL),
        (1, [0.0, 3.0, 3.0], TokenVerdict.EXACT_TIE),
        (2, [0.0, 3.0, 2.9], TokenVerdict.NEAR_TIE),
        (2, [0.0, 3.0, 3.0], TokenVerdict.NEAR_TIE),
    ],
)
def test_verdict_tells_equal_from_tied(token_id, row, verdict):
    assert verdict_of(token_id, 1, np.array(row)) is verdict

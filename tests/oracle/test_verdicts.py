"""A cell's verdict: fail before vacuous before pass, and what only a whole run can show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.observation import Observation
from oracle.tolerances import HALF_ERROR_FACTOR
from oracle.verdicts import Cell, Failure, Verdict

EXACT_DTYPES = ("float32", "float64")
HALF_DTYPES = ("bfloat16", "float16")


def cell_of(*observations, dtype="float32"):
    """A cell that has seen some cases."""
    cell = Cell("order", "static")
    for observation in observations:
        cell.see(observation, dtype)
    return cell


def half_errors(subject, reference):
    """What one case in half precision measured."""
    return Observation(subject_errors=subject, reference_errors=reference)


def test_cell_without_a_case_is_vacuous():
    assert cell_of().verdict is Verdict.VACUOUS


@given(witnessed=st.lists(st.booleans()))
def test_cell_passes_once_one_case_witnessed_its_subject(witnessed):
    cell = cell_of(*(Observation(witnessed=value) for value in witnessed))
    assert (cell.num_examples, cell.num_witnessed) == (len(witnessed), sum(witnessed))
    assert cell.verdict is (Verdict.PASS if any(witnessed) else Verdict.VACUOUS)


@pytest.mark.parametrize("witnessed", [True, False])
def test_failure_outweighs_every_other_verdict(witnessed):
    cell = cell_of(Observation(witnessed=witnessed))
    cell.failure = Failure("wrong", None)
    assert cell.verdict is Verdict.FAIL


@given(cases=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3), st.integers(0, 3), st.floats(0, 1)), min_size=1))
@pytest.mark.parametrize("dtype", [*EXACT_DTYPES, *HALF_DTYPES])
def test_cell_adds_up_counts_and_keeps_half_precision_apart(cases, dtype):
    """Near ties are common in half precision and its differences large; they must not drown the exact dtypes'."""
    cell = cell_of(
        *(
            Observation(
                num_positions=positions, num_near_ties=near, num_exact_ties=exact, largest_difference=difference
            )
            for positions, near, exact, difference in cases
        ),
        dtype=dtype,
    )
    positions, near, exact, differences = zip(*cases, strict=True)
    is_half = dtype in HALF_DTYPES
    assert cell.num_positions == (0 if is_half else sum(positions))
    assert cell.num_near_ties == (0 if is_half else sum(near))
    assert cell.num_half_near_ties == (sum(near) if is_half else 0)
    assert cell.num_exact_ties == sum(exact)
    assert cell.largest_difference == (None if is_half else max(differences))


def test_cell_without_a_compared_logit_has_no_largest_difference():
    """A difference of 0 is a figure; no difference is none."""
    assert cell_of(Observation()).largest_difference is None
    assert cell_of(Observation(), Observation(largest_difference=0.0)).largest_difference == 0.0


@pytest.mark.parametrize(
    ("num_near_ties", "num_positions", "verdict"),
    [
        (0, 1000, Verdict.PASS),
        (1, 2, Verdict.PASS),
        (2, 199, Verdict.FAIL),
        (2, 200, Verdict.PASS),
        (10, 1000, Verdict.PASS),
        (11, 1000, Verdict.FAIL),
        (1000, 1000, Verdict.FAIL),
    ],
)
@pytest.mark.parametrize("dtype", EXACT_DTYPES)
def test_run_fails_when_more_than_its_share_of_tokens_is_near_tied(num_near_ties, num_positions, verdict, dtype):
    """One is always permitted: a short run has no rate."""
    cell = cell_of(Observation(num_positions=num_positions, num_near_ties=num_near_ties), dtype=dtype)
    cell.judge_run()
    assert cell.verdict is verdict
    if cell.failure is not None:
        assert cell.failure.message.startswith(f"{num_near_ties} of {num_positions} tokens are near ties")
        assert cell.failure.scenario is None


def test_near_ties_are_judged_over_the_whole_run():
    """No single case is over the rate's floor, and the run is."""
    cell = cell_of(*[Observation(num_positions=10, num_near_ties=1)] * 5)
    cell.judge_run()
    assert cell.verdict is Verdict.FAIL


def test_near_ties_in_half_precision_fail_no_run():
    cell = cell_of(Observation(num_positions=10, num_near_ties=10), dtype="bfloat16")
    cell.judge_run()
    assert cell.verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", HALF_DTYPES)
@pytest.mark.parametrize(("factor", "verdict"), [(0.0, "pass"), (1.0, "pass"), (2.0, "pass"), (2.1, "fail")])
@pytest.mark.parametrize("figure", ["largest", "mean"])
def test_half_precision_may_err_up_to_twice_the_reference(dtype, factor, verdict, figure):
    scaled = (factor, 1.0, 10) if figure == "largest" else (1.0, 10 * factor, 10)
    cell = cell_of(half_errors(scaled, (1.0, 10.0, 10)), dtype=dtype)
    cell.judge_run()
    assert cell.verdict == verdict
    if cell.failure is not None:
        assert f"the {figure} error in {dtype}" in cell.failure.message


def test_half_precision_is_judged_over_the_whole_run():
    """The largest of a handful of errors is a matter of chance; only the run's figures are compared."""
    cell = cell_of(
        half_errors((3.0, 5.0, 10), (1.0, 10.0, 10)), half_errors((1.0, 5.0, 10), (2.0, 10.0, 10)), dtype="float16"
    )
    cell.judge_run()
    assert cell.error_sums == {"float16": ((3.0, 10.0, 20), (2.0, 20.0, 20))}
    assert cell.verdict is Verdict.PASS


def test_half_precisions_are_judged_apart():
    cell = Cell("half_precision", "none")
    cell.see(half_errors((1.0, 10.0, 10), (1.0, 10.0, 10)), "bfloat16")
    cell.see(half_errors((0.5, 5.0, 10), (0.1, 1.0, 10)), "float16")
    cell.judge_run()
    assert cell.failure is not None
    assert "float16" in cell.failure.message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 1])
def test_half_precision_errors_that_are_not_finite_fail_the_run(value, place):
    errors = [1.0, 10.0]
    errors[place] = value
    cell = cell_of(half_errors((*errors, 10), (1.0, 10.0, 10)), dtype="float16")
    cell.judge_run()
    assert cell.verdict is Verdict.FAIL


def test_exact_subject_passes_beside_an_exact_reference():
    cell = cell_of(half_errors((0.0, 0.0, 10), (0.0, 0.0, 10)), dtype="float16")
    cell.judge_run()
    assert cell.verdict is Verdict.PASS


def test_judging_a_run_keeps_the_failure_of_a_case():
    cell = cell_of(half_errors((HALF_ERROR_FACTOR * 2, 1.0, 1), (1.0, 1.0, 1)), dtype="float16")
    cell.failure = first = Failure("seen first", None)
    cell.judge_run()
    assert cell.failure is first

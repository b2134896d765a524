import time

from oracle.checkpoint_spec import CheckpointSpec
from oracle.explain.explanation import CheckFigure
from oracle.explain.failing_check import Checks, FailingCheck, failing_checks
from oracle.faults import FAULTS
from oracle.scenario import RequestSpec, Scenario
from oracle.verdicts import Verdict

SCENARIO = Scenario(requests=(RequestSpec((1, 2, 3), max_tokens=2),), checkpoint=CheckpointSpec(num_layers=1))


def test_right_case_fails_no_check():
    figures = Checks().run_all(SCENARIO, deadline=time.monotonic() + 60)
    assert Verdict.FAIL not in {figure.verdict for figure in figures}
    assert {"reference_bits", "schedules", "effects", "state"} <= {figure.name for figure in figures}


def test_checks_go_on_without_time_until_one_fails():
    with FAULTS["causal_mask_one_ahead"].planted():
        figures = Checks().run_all(SCENARIO, deadline=0.0)
    assert [figure.verdict for figure in figures][-1] == Verdict.FAIL
    assert Verdict.FAIL not in {figure.verdict for figure in figures[:-1]}


def test_changed_case_is_held_to_the_same_check(symbolic):
    check = FailingCheck("symbolic schedules", "paged", "")
    assert not Checks().fails(symbolic, check)
    with FAULTS["copy_on_write_left_out"].planted():
        assert Checks().fails(symbolic, check)


def test_state_between_steps_is_a_check_too(symbolic):
    with FAULTS["newest_block_not_released"].planted():
        assert Checks().fails(symbolic, FailingCheck("state", "paged", ""))


def test_failing_checks_are_one_of_each_name_in_their_order():
    verdicts = [("a", "x", "pass"), ("b", "x", "fail"), ("b", "y", "fail"), ("c", "x", "fail"), ("a", "z", "fail")]
    figures = [CheckFigure(name, mode, Verdict(verdict), None) for name, mode, verdict in verdicts]
    assert [(check.name, check.mode) for check in failing_checks(figures)] == [("b", "x"), ("c", "x"), ("a", "z")]

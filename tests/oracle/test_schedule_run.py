"""A run counts, fails and shrinks, mode by mode, and knows when it saw nothing."""

import time

import pytest

from oracle.choosers import RandomChooser
from oracle.errors import CheckFailed
from oracle.schedule_run import run_schedules
from oracle.schedule_strategies import choose_symbolic_schedule
from oracle.symbolic_check import run_with_effects
from oracle.verdicts import Verdict


def schedules(number):
    choose = RandomChooser(0)
    return (choose_symbolic_schedule(choose) for _ in range(number))


def test_a_failing_mode_is_shrunk_and_others_go_on():
    def run(scenario, mode):
        if mode == "paged" and len(scenario.requests) > 1:
            message = "two requests"
            raise CheckFailed(message)
        return run_with_effects(scenario, mode)

    paged, continuous = run_schedules(schedules(10), run, ("paged", "continuous"))
    assert (paged.verdict, continuous.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert paged.failure is not None
    assert paged.failure.scenario is not None
    assert len(paged.failure.scenario.requests) == 2
    assert paged.failure.message == "two requests"
    assert continuous.table.num_schedules == 10


@pytest.mark.parametrize(("number", "mode"), [(0, "continuous"), (1, "paged")])
def test_a_run_that_saw_nothing_is_vacuous(number, mode):
    (report,) = run_schedules(schedules(number), run_with_effects, (mode,))
    assert report.verdict is Verdict.VACUOUS


def test_time_ends_a_run():
    (report,) = run_schedules(schedules(5), run_with_effects, ("none",), deadline=time.monotonic() - 1)
    assert report.table.num_schedules == 0


@pytest.mark.parametrize(
    ("features", "verdict"),
    [((), Verdict.PASS), (("accept",), Verdict.VACUOUS), (("accept", "no such feature"), Verdict.VACUOUS)],
)
def test_a_wanted_feature_that_never_came_makes_a_run_vacuous(features, verdict):
    choose = RandomChooser(0)
    silent = (choose_symbolic_schedule(choose, is_speculative=False) for _ in range(2))
    (report,) = run_schedules(silent, run_with_effects, ("paged",), features=features)
    assert (report.verdict, report.features, report.table.missing(report.features)) == (verdict, features, features)


def test_a_wanted_feature_that_came_makes_a_run_pass():
    choose = RandomChooser(0)
    guessing = [choose_symbolic_schedule(choose, is_speculative=True) for _ in range(8)]
    paged, continuous = run_schedules(iter(guessing), run_with_effects, ("paged", "continuous"), features=("accept",))
    assert paged.verdict is Verdict.PASS
    assert paged.table.share("accept") > 0
    assert continuous.verdict is Verdict.PASS, "a mode without blocks cannot have it"

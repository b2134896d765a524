"""Runs many schedules, keeps count of what they had, and shrinks the first one of each mode that fails."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from oracle.drive import Drive
from oracle.errors import CheckFailed
from oracle.scenario import Scenario
from oracle.schedule_shrinker import shrink
from oracle.schedule_witness import FEATURES, PAIRS, WitnessTable
from oracle.verdicts import Failure, Verdict

MAX_SHRINK_SECONDS = 30.0
"""For the failing schedule of one mode."""

RunSchedule = Callable[[Scenario, str], tuple[Drive, set[str]]]
"""Runs a schedule in a mode; gives the run and the effects that were seen, or raises `CheckFailed`."""


@dataclass
class ModeReport:
    """What was seen of one mode.

    Attributes:
        mode: Its name.
        table: What its schedules had.
        failure: The smallest schedule that failed, if one did.
        seconds: How long its runs took.
        features: What has to have come up, where a mode can have it.
    """

    mode: str
    features: tuple[str, ...] = (*FEATURES, *PAIRS)
    table: WitnessTable = field(default_factory=WitnessTable)
    failure: Failure | None = None
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """Fail if a schedule failed; vacuous if a feature that the mode can have never came up."""
        if self.failure is not None:
            return Verdict.FAIL
        can_have = not self.mode.startswith("paged") or not self.table.missing(self.features)
        return Verdict.PASS if can_have and self.table.num_schedules else Verdict.VACUOUS


def run_schedules(
    schedules: Iterator[Scenario],
    run: RunSchedule,
    modes: tuple[str, ...],
    *,
    deadline: float | None = None,
    on_schedule: Callable[[], None] = lambda: None,
    features: tuple[str, ...] = (*FEATURES, *PAIRS),
) -> list[ModeReport]:
    """Runs every schedule in every mode that has not failed yet.

    Args:
        schedules: What is run.
        run: How.
        modes: Names of modes.
        deadline: When no further schedule is begun, on the monotonic clock.
        on_schedule: Called after each schedule.
        features: What has to come up.
    """
    reports = [ModeReport(mode, features) for mode in modes]
    for scenario in schedules:
        if deadline is not None and time.monotonic() > deadline:
            break
        for report in reports:
            if report.failure is None:
                _run_one(scenario, run, report)
        on_schedule()
    return reports


def _run_one(scenario: Scenario, run: RunSchedule, report: ModeReport) -> None:
    start = time.perf_counter()
    try:
        report.table.see(*run(scenario, report.mode))
    except CheckFailed as error:
        report.failure = _smallest(scenario, run, report.mode, error)
    report.seconds += time.perf_counter() - start


def _smallest(scenario: Scenario, run: RunSchedule, mode: str, error: CheckFailed) -> Failure:
    def failure_of(smaller: Scenario) -> CheckFailed | None:
        try:
            run(smaller, mode)
        except CheckFailed as own:
            return own
        return None

    deadline = time.monotonic() + MAX_SHRINK_SECONDS
    smallest = shrink(scenario, lambda smaller: failure_of(smaller) is not None, deadline=deadline)
    return Failure(str(failure_of(smallest) or error), smallest)

"""Fills one row of the matrix: plants a fault, takes the lanes in turns until all is seen, and asks where it sits."""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from oracle.errors import OracleError
from oracle.explain.explain_scenario import explain_scenario
from oracle.explain.failing_check import EFFECTS, SCHEDULES, STATE, SYMBOLIC, Checks, FailingCheck
from oracle.faults import LAW_FAULTS
from oracle.faults.registry import Fault
from oracle.matrix.kills import RULES, FaultRow, Kill, Location
from oracle.matrix.lanes import CaseLane, Lane, LawLane, ModelLane, SymbolicLane
from oracle.rejection_law import SOURCES_OF_LAW
from oracle.scenario import Scenario
from oracle.schedule_shrinker import shrink
from oracle.verdicts import Verdict
from refinfer.errors import RefinferError

_CHECKS_OF_SCHEDULES = (SCHEDULES, EFFECTS, STATE, SYMBOLIC)
_SECONDS_OF_CHECKS = 5.0
_LONGEST_MESSAGE = 200

_SHARES = ((SymbolicLane.name, 15), (ModelLane.name, 3), (CaseLane.name, 1), (LawLane.name, 2))
"""How many examples of each lane go with one case; a case costs about as much as so many of another lane."""


@dataclass(frozen=True)
class MatrixSettings:
    """How long is looked.

    Attributes:
        seed: Decides every example.
        num_examples: By lane, how many examples are looked at for ways that have not seen the fault.
        patience: So many times as many are looked at where no way has seen it at all.
        max_seconds: After so many seconds no further example is begun.
        shrink_seconds: What the search for a small case may take.
        stops_at_first: Whether nothing more is looked at once some way has seen the fault, nor is it located.
    """

    seed: int = 0
    num_examples: tuple[tuple[str, int], ...] = tuple((name, 20 * share) for name, share in _SHARES)
    patience: int = 10
    max_seconds: float = 120.0
    shrink_seconds: float = 10.0
    stops_at_first: bool = False

    @classmethod
    def of_cases(cls, num_cases: int, **others: Any) -> "MatrixSettings":
        """Gives settings with so many cases, and other examples in proportion to what they cost."""
        return cls(num_examples=tuple((name, num_cases * share) for name, share in _SHARES), **others)


@dataclass
class _Clocked:
    """A lane with what was done of it.

    Attributes:
        lane: The lane.
        most: So many examples are looked at, or with patience a multiple of it; 0 once there are no more.
        num_examples: Examples that were looked at.
        seconds: What they took.
    """

    lane: Lane
    most: int
    num_examples: int = 0
    seconds: float = 0.0


class RowFiller:
    """Fills the row of one fault.

    Args:
        fault: What is planted.
        settings: How long is looked.
    """

    def __init__(self, fault: Fault, settings: MatrixSettings) -> None:
        self._fault = fault
        self._settings = settings
        self._row = FaultRow(fault.name, str(fault.area), fault.sources, fault.needs, fault.seen_by)
        most = dict(settings.num_examples)
        seed = settings.seed
        num_cases = most[CaseLane.name] * settings.patience
        lanes = (SymbolicLane(seed), ModelLane(seed), CaseLane(seed, num_cases), LawLane(seed))
        self._lanes = [_Clocked(lane, most[lane.name]) for lane in lanes]
        self._scenarios: list[tuple[Lane, Scenario]] = []

    def run(self) -> FaultRow:
        """Plants the fault, and gives its row."""
        with self._fault.planted():
            while (own := self._next_lane()) is not None:
                self._look(own)
            self._row.examples = {own.lane.name: own.num_examples for own in self._lanes}
            if self._row.first is not None and not self._settings.stops_at_first:
                self._locate()
        return self._row

    def _next_lane(self) -> _Clocked | None:
        """Gives the lane that has taken the least time, of those that may still show something new."""
        is_late = sum(own.seconds for own in self._lanes) > self._settings.max_seconds
        if is_late or (self._settings.stops_at_first and self._row.first is not None):
            return None
        patience = self._settings.patience if self._row.first is None else 1
        is_open = [
            own
            for own in self._lanes
            if own.num_examples < patience * own.most and self._wanted(own.lane) & own.lane.shows
        ]
        return min(is_open, key=lambda own: own.seconds, default=None)

    def _wanted(self, lane: Lane) -> frozenset[str]:
        """Gives the ways that have not seen the fault, and what saw it where no example can be run again."""
        shows = frozenset[str]().union(*(own.lane.shows for own in self._lanes))
        has_example = bool(self._scenarios) or isinstance(lane, LawLane)
        again = frozenset() if has_example else LawLane.shows
        return (shows - self._row.kills.keys() - self._row.rule_kills.keys()) | again

    def _look(self, own: _Clocked) -> None:
        start = time.monotonic()
        wanted = self._wanted(own.lane)
        sightings = own.lane.next_example(wanted)
        if sightings is None:
            own.most = 0
            return
        own.num_examples += 1
        has_killed = False
        for name, message in list(sightings):  # a kill takes the whole example
            is_rule = name in RULES
            kills = self._row.rule_kills if is_rule else self._row.kills
            has_killed |= name in wanted and not is_rule
            if name in wanted and name not in kills:
                seconds = own.seconds + time.monotonic() - start
                kills[name] = Kill(own.lane.name, own.num_examples, seconds, message[:_LONGEST_MESSAGE])
                if self._row.first is None and not is_rule:
                    others = sum(other.seconds for other in self._lanes if other is not own)
                    self._row.first = Kill(
                        own.lane.name, own.num_examples, others + seconds, message[:_LONGEST_MESSAGE]
                    )
        own.seconds += time.monotonic() - start
        if has_killed and own.lane.scenario is not None:
            self._scenarios.append((own.lane, own.lane.scenario))

    def _locate(self) -> None:
        """Explains the first case that shows the fault again, made small."""
        checks = Checks()
        # On the symbolic model a thousand smaller cases can be tried in the time in which one runs on another.
        for lane, scenario in sorted(self._scenarios, key=lambda own: not isinstance(own[0], SymbolicLane)):
            check = _failing_check(checks, lane, scenario)
            if check is None:
                continue
            deadline = time.monotonic() + self._settings.shrink_seconds
            case = shrink(scenario, partial(_fails, checks, check), deadline=deadline)
            self._row.case = case
            self._row.location = _explained(case)
            return
        if self._fault.name in LAW_FAULTS:
            message = self._row.kills["distribution"].message
            self._row.location = Location(SOURCES_OF_LAW, message, 0.0)
        else:
            self._row.location = Location((), "no single case shows it again", 0.0)


def _explained(case: Scenario) -> Location:
    start = time.monotonic()
    try:
        found = explain_scenario(case)
    except (OracleError, RefinferError) as error:
        sentence = f"{type(error).__name__}: {error}"
        return Location((), sentence, time.monotonic() - start)
    return Location(found.blame.sources, found.blame.sentence, found.seconds)


def _failing_check(checks: Checks, lane: Lane, scenario: Scenario) -> FailingCheck | None:
    """Gives a check that an example fails: one of those that are about schedules, where the example is one."""
    figures = checks.run_all(scenario, deadline=time.monotonic() + _SECONDS_OF_CHECKS)
    failing = [figure for figure in figures if figure.verdict == Verdict.FAIL]
    if not isinstance(lane, CaseLane):
        failing.sort(key=lambda figure: figure.name not in _CHECKS_OF_SCHEDULES)
    return FailingCheck(failing[0].name, failing[0].mode, "") if failing else None


def _fails(checks: Checks, check: FailingCheck, scenario: Scenario) -> bool:
    return checks.fails(scenario, check)


def fill_row(fault: Fault, settings: MatrixSettings) -> FaultRow:
    """Plants a fault and gives its row of the matrix.

    Args:
        fault: What is planted.
        settings: How long is looked.
    """
    torch.set_num_threads(1)
    return RowFiller(fault, settings).run()

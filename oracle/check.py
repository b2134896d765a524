"""Runs properties over generated cases, fills the table of verdicts, and shrinks what failed."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hypothesis.strategies import SearchStrategy

from oracle.case import Case
from oracle.case_check import CaseReport, CaseTask
from oracle.case_workers import CaseWorkers
from oracle.checkpoints import CheckpointSpec
from oracle.properties import PROPERTIES, Property, observe
from oracle.scenario import Scenario
from oracle.search import ShrinkSearch, StopDrawing, draw_scenarios
from oracle.verdicts import Cell, Failure

MAX_SHRINK_SECONDS = 60.0
"""For all failed cells of a run together; what is left of it is shared out evenly."""


DRAWS_PER_CASE = 8
MAX_CASES_PER_CHECKPOINT = 2
"""Hypothesis follows each fresh draw by up to five that copy parts of it, most often on the same checkpoint.

Few of those show anything new, so most are passed over, and more are drawn to make up for them.
"""


@dataclass(frozen=True)
class CheckSettings:
    """What a check runs.

    Attributes:
        modes: The columns.
        strategy: What cases are drawn from.
        folder: The checkpoint, for scenarios that generate none.
        num_examples: Cases to draw.
        seed: Seed of the search; the same seed draws the same cases.
        time_budget: Seconds after which no further case is checked; None sets no limit.
        properties: The rows.
        shrink: Whether to search for the smallest failing case.
        stop_at_failure: Whether the first failed check ends the run.
        num_chunkings: In how many ways `bits` cuts requests into chunks.
        digest_modes: Modes whose rows of logits get a line of digest each.
        num_processes: Processes that check cases; the same cases are seen whatever their number.
    """

    modes: tuple[str, ...]
    strategy: SearchStrategy[Scenario]
    folder: Path | None
    num_examples: int
    seed: int
    time_budget: float | None = None
    properties: tuple[Property, ...] = PROPERTIES
    shrink: bool = True
    stop_at_failure: bool = False
    num_chunkings: int = 2
    digest_modes: tuple[str, ...] = ()
    num_processes: int = 1


class Checker:
    """Fills a table mode × property.

    A failing check does not end the run: the cell keeps its first failure, other cells go on.
    Afterwards each failed cell is searched again by itself, for the smallest case that fails.

    Args:
        check_settings: What to run.
        on_case: Called with the report of each case, in the order of the cases.
    """

    def __init__(self, check_settings: CheckSettings, on_case: Callable[[CaseReport], None] = lambda _: None) -> None:
        self._settings = check_settings
        self._on_case = on_case
        self._workers = CaseWorkers(check_settings.num_processes)
        self._num_begun = 0
        self._num_cases = 0
        self._deadline = None if check_settings.time_budget is None else time.monotonic() + check_settings.time_budget
        self._num_cases_by_checkpoint: Counter[CheckpointSpec] = Counter()
        self._begun: set[Scenario] = set()
        self.interrupted = False
        self.cells = {
            (prop.name, mode): Cell(prop.name, mode)
            for prop in check_settings.properties
            for mode in check_settings.modes
            if mode in prop.modes and not (prop.is_generated_only and check_settings.folder is not None)
        }

    @property
    def _num_draws(self) -> int:
        return DRAWS_PER_CASE * self._settings.num_examples

    @property
    def num_cases(self) -> int:
        """Cases checked so far."""
        return self._num_cases

    def run(self) -> list[Cell]:
        """Checks cases until there are enough, time is up, or somebody interrupts; gives the cells."""
        with self._workers, self._interruptible():
            draw_scenarios(
                self._settings.strategy,
                self._begin_case,
                num_examples=self._num_draws,
                seed=self._settings.seed,
            )
            for report in self._workers.rest():
                self._take(report)
        for cell in self.cells.values():
            cell.judge_run()
        if self._settings.shrink and not self.interrupted:
            with self._interruptible():
                self._shrink_failures()
        return list(self.cells.values())

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Lets an interrupted run still report what it has seen."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True

    def _is_over(self) -> bool:
        """Tells whether no further case is wanted."""
        is_late = self._deadline is not None and time.monotonic() > self._deadline
        return self._num_begun >= self._settings.num_examples or is_late or self._is_stopped()

    def _is_stopped(self) -> bool:
        """Tells whether a failure has ended the run."""
        return self._settings.stop_at_failure and any(cell.failure is not None for cell in self.cells.values())

    def _is_repetitive(self, scenario: Scenario) -> bool:
        """Tells whether the case was checked, or enough cases on the same generated checkpoint."""
        if scenario in self._begun:
            return True
        self._begun.add(scenario)
        if scenario.checkpoint is None:
            return False
        self._num_cases_by_checkpoint[scenario.checkpoint] += 1
        return self._num_cases_by_checkpoint[scenario.checkpoint] > MAX_CASES_PER_CHECKPOINT

    def _begin_case(self, scenario: Scenario) -> None:
        if self._is_over():
            raise StopDrawing
        if self._is_repetitive(scenario):
            return
        checks = tuple(
            (prop, mode)
            for (name, mode), cell in self.cells.items()
            if scenario.dtype in (prop := self._property(name)).dtypes and cell.failure is None
        )
        self._workers.check(
            CaseTask(
                self._num_begun,
                scenario,
                self._settings.folder,
                checks,
                num_chunkings=self._settings.num_chunkings,
                stop_at_failure=self._settings.stop_at_failure,
                digest_modes=self._settings.digest_modes,
            )
        )
        self._num_begun += 1
        for report in self._workers.finished():
            self._take(report)

    def _take(self, report: CaseReport) -> None:
        """Enters a report into the table; what was begun before a failure ended the run, or its cell, is left out."""
        if self._is_stopped():
            return
        scenario = report.task.scenario
        for key, seen in report.seen.items():
            cell = self.cells[key]
            if cell.failure is not None:
                continue
            if isinstance(seen, str):
                cell.num_examples += 1
                cell.failure = Failure(seen, scenario)
            else:
                cell.see(seen, scenario.dtype)
        self._num_cases += 1
        self._on_case(report)

    def _shrink_failures(self) -> None:
        """Searches for the smallest case on which each failed cell still fails."""
        failures = [
            (cell, cell.failure, cell.failure.scenario)
            for cell in self.cells.values()
            if cell.failure is not None and cell.failure.scenario is not None
        ]
        end = time.monotonic() + MAX_SHRINK_SECONDS
        for num_done, (cell, failure, scenario) in enumerate(failures):
            now = time.monotonic()
            search = ShrinkSearch(
                partial(self._observe, self._property(cell.property_name), mode=cell.mode),
                failure,
                scenario,
                deadline=now + (end - now) / (len(failures) - num_done),
            )
            cell.failure = search.run(self._settings.strategy, num_examples=self._num_draws, seed=self._settings.seed)

    def _observe(self, prop: Property, scenario: Scenario, mode: str) -> None:
        observe(prop, self._case(scenario), mode)

    def _case(self, scenario: Scenario) -> Case:
        return Case(scenario, self._settings.folder, num_chunkings=self._settings.num_chunkings)

    def _property(self, name: str) -> Property:
        return next(prop for prop in self._settings.properties if prop.name == name)

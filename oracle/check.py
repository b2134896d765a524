"""Runs properties over generated cases, fills the table of verdicts, and shrinks what failed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.strategies import SearchStrategy

from oracle.case import Case
from oracle.errors import MismatchError
from oracle.properties import PROPERTIES, Observation, Property
from oracle.scenario import Scenario
from oracle.tolerances import HALF_ERROR_FACTOR, MAX_NEAR_TIE_RATE
from refinfer.errors import RefinferError

_FAILURES = (MismatchError, RefinferError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""What counts as a failed check: a mismatch, or any error that a subject raises on a legal scenario."""

MAX_SHRINK_EXAMPLES = 400


class Verdict(StrEnum):
    """What a cell of the table says."""

    PASS = "pass"
    FAIL = "fail"
    VACUOUS = "vacuous"


@dataclass(frozen=True)
class Failure:
    """The first failed check of a cell, and the smallest case that still fails.

    Attributes:
        message: What went wrong, on the smallest case.
        scenario: That case; None where the verdict is about the run as a whole.
    """

    message: str
    scenario: Scenario | None


@dataclass
class Cell:
    """What was seen of one property in one mode.

    Attributes:
        property_name: The row.
        mode: The column.
        num_examples: Cases checked.
        num_witnessed: Cases in which what the property is about happened.
        largest_difference: Largest difference of logits.
        num_positions: Tokens judged.
        num_near_ties: Tokens explained by a near tie, in float32 and float64.
        num_half_near_ties: The same in half precision, where they are common.
        num_exact_ties: Positions with several best logits.
        error_sums: For each half dtype, (largest, sum, count) of the subject's and the reference's errors.
        failure: What failed, if anything did.
    """

    property_name: str
    mode: str
    num_examples: int = 0
    num_witnessed: int = 0
    largest_difference: float = 0.0
    num_positions: int = 0
    num_near_ties: int = 0
    num_half_near_ties: int = 0
    num_exact_ties: int = 0
    error_sums: dict[str, tuple[tuple[float, float, int], tuple[float, float, int]]] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def verdict(self) -> Verdict:
        """Fail if anything failed, vacuous if nothing was witnessed, else pass."""
        if self.failure is not None:
            return Verdict.FAIL
        return Verdict.PASS if self.num_witnessed else Verdict.VACUOUS

    def see(self, observation: Observation, dtype: str) -> None:
        """Takes in one checked case."""
        self.num_examples += 1
        self.num_witnessed += observation.witnessed
        self.num_exact_ties += observation.num_exact_ties
        if dtype in ("float32", "float64"):
            self.largest_difference = max(self.largest_difference, observation.largest_difference)
            self.num_positions += observation.num_positions
            self.num_near_ties += observation.num_near_ties
        else:
            self.num_half_near_ties += observation.num_near_ties
        if observation.subject_errors is not None and observation.reference_errors is not None:
            old = self.error_sums.get(dtype, ((0.0, 0.0, 0), (0.0, 0.0, 0)))
            self.error_sums[dtype] = (
                _added(old[0], observation.subject_errors),
                _added(old[1], observation.reference_errors),
            )

    def judge_run(self) -> None:
        """Judges what only a whole run can show: the rate of near ties, and the error in half precision."""
        if self.failure is None and self.num_near_ties > max(1.0, MAX_NEAR_TIE_RATE * self.num_positions):
            self.failure = Failure(
                f"{self.num_near_ties} of {self.num_positions} tokens are near ties; "
                f"at most {MAX_NEAR_TIE_RATE:.0%} may be",
                None,
            )
        for dtype, (subject, reference) in self.error_sums.items():
            for name, own, theirs in (
                ("largest", subject[0], reference[0]),
                ("mean", subject[1] / subject[2], reference[1] / reference[2]),
            ):
                if self.failure is None and own > HALF_ERROR_FACTOR * theirs:
                    self.failure = Failure(
                        f"the {name} error in {dtype} is {own:.3g}, "
                        f"over {HALF_ERROR_FACTOR} times the reference's {theirs:.3g}",
                        None,
                    )


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


class Checker:
    """Fills a table mode × property.

    A failing check does not end the run: the cell keeps its first failure, other cells go on.
    Afterwards each failed cell is searched again by itself, for the smallest case that fails.

    Args:
        check_settings: What to run.
        on_progress: Called after each case with the number of cases checked so far.
    """

    def __init__(
        self, check_settings: CheckSettings, on_progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self._settings = check_settings
        self._on_progress = on_progress
        self._num_cases = 0
        self._deadline = (
            None if check_settings.time_budget is None else time.monotonic() + check_settings.time_budget
        )
        self.interrupted = False
        self.cells = {
            (prop.name, mode): Cell(prop.name, mode)
            for prop in check_settings.properties
            for mode in check_settings.modes
            if mode in prop.modes and not (prop.is_generated_only and check_settings.folder is not None)
        }

    @property
    def num_cases(self) -> int:
        """Cases checked so far."""
        return self._num_cases

    def run(self) -> list[Cell]:
        """Checks cases until there are enough, time is up, or somebody interrupts; gives the cells."""
        with self._interruptible():
            self._search(self._check_case, shrink=False)
        for cell in self.cells.values():
            cell.judge_run()
        with self._interruptible():
            for cell in self.cells.values():
                if cell.failure is not None and cell.failure.scenario is not None and self._settings.shrink:
                    self._shrink(cell)
        return list(self.cells.values())

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Lets an interrupted run still report what it has seen."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True

    def _search(self, check: Callable[[Scenario], None], *, shrink: bool) -> None:
        """Lets Hypothesis draw scenarios."""
        phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)

        @seed(self._settings.seed)
        @settings(
            max_examples=MAX_SHRINK_EXAMPLES if shrink else self._settings.num_examples,
            phases=phases,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=Verbosity.quiet,
        )
        @given(scenario=self._settings.strategy)
        def draw(scenario: Scenario) -> None:
            check(scenario)

        draw()

    def _is_over(self) -> bool:
        """Tells whether no further check is wanted; Hypothesis goes on drawing, which costs little."""
        is_late = self._deadline is not None and time.monotonic() > self._deadline
        has_failed = any(cell.failure is not None for cell in self.cells.values())
        return is_late or (self._settings.stop_at_failure and has_failed)

    def _check_case(self, scenario: Scenario) -> None:
        if self._is_over():
            return
        case = Case(scenario, self._settings.folder)
        for (name, mode), cell in self.cells.items():
            prop = self._property(name)
            if scenario.dtype not in prop.dtypes or cell.failure is not None or self._is_over():
                continue
            try:
                cell.see(prop.check(case, mode), scenario.dtype)
            except _FAILURES as error:
                cell.num_examples += 1
                cell.failure = Failure(_described(error), scenario)
        self._num_cases += 1
        self._on_progress(self._num_cases)

    def _shrink(self, cell: Cell) -> None:
        """Searches for the smallest case on which a cell still fails."""
        prop = self._property(cell.property_name)
        smallest: list[Failure] = []

        def check_one(scenario: Scenario) -> None:
            if scenario.dtype not in prop.dtypes:
                return
            try:
                prop.check(Case(scenario, self._settings.folder), cell.mode)
            except _FAILURES as error:
                smallest.append(Failure(_described(error), scenario))
                raise

        try:
            self._search(check_one, shrink=True)
        except _FAILURES:
            cell.failure = smallest[-1]

    def _property(self, name: str) -> Property:
        return next(prop for prop in self._settings.properties if prop.name == name)


def _added(old: tuple[float, float, int], new: tuple[float, float, int]) -> tuple[float, float, int]:
    return max(old[0], new[0]), old[1] + new[1], old[2] + new[2]


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, MismatchError) else f"{type(error).__name__}: {error}"

"""Which checks of a case fail, and does a changed case still fail the one that is explained?"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oracle.case import Case
from oracle.checkpoint_spec import CheckpointSpec
from oracle.errors import CheckFailed, OracleError
from oracle.explain.explanation import CheckFigure
from oracle.faults.schedule_hunt import run_watched
from oracle.properties import PROPERTIES, observe
from oracle.sampling_effects import observed_effects
from oracle.scenario import Scenario
from oracle.schedule_properties import ModelRuns
from oracle.symbolic import EOS_TOKEN_IDS
from oracle.symbolic_check import JOINING_MODES, SYMBOLIC_MODES, run_symbolic
from oracle.verdicts import Verdict
from refinfer.engine import LoadedModel

SCHEDULES = "schedules"
EFFECTS = "effects"
STATE = "state"
SYMBOLIC = "symbolic schedules"


@dataclass(frozen=True)
class FailingCheck:
    """A check by its names.

    Attributes:
        name: The property, "effects", "state" or "symbolic schedules".
        mode: The mode it is held to.
        message: What it said.
    """

    name: str
    mode: str
    message: str


class Checks:
    """Runs checks on a case and on changed ones; every model is loaded once.

    Args:
        folder: The checkpoint, for scenarios that generate none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._loaded: dict[tuple[CheckpointSpec | None, str], dict[bool, LoadedModel]] = {}
        self._runs = ModelRuns()

    def case(self, scenario: Scenario) -> Case:
        """Gives a case with the models that are loaded already."""
        loaded = self._loaded.setdefault((scenario.checkpoint, scenario.dtype), {})
        return Case(scenario, self._folder, loaded)

    def run_all(self, scenario: Scenario, *, deadline: float) -> list[CheckFigure]:
        """Runs every check on a case, while there is time, and at least until one fails."""
        figures: list[CheckFigure] = []
        case = None if scenario.is_symbolic else self.case(scenario)
        for name, mode in self._names(scenario):
            has_failed = any(figure.verdict == Verdict.FAIL for figure in figures)
            if has_failed and time.monotonic() > deadline:
                break
            verdict, message = self._verdict(scenario, case, name, mode)
            figures.append(CheckFigure(name, mode, verdict, message))
        return figures

    def fails(self, scenario: Scenario, check: FailingCheck) -> bool:
        """Tells whether a scenario fails a check."""
        case = None if scenario.is_symbolic else self.case(scenario)
        return self._verdict(scenario, case, check.name, check.mode)[0] == Verdict.FAIL

    def _names(self, scenario: Scenario) -> Iterator[tuple[str, str]]:
        if scenario.is_symbolic:
            yield from ((SYMBOLIC, mode) for mode in SYMBOLIC_MODES[::-1])
            yield STATE, "paged"
            return
        for prop in PROPERTIES:
            if scenario.dtype not in prop.dtypes or (prop.is_generated_only and self._folder is not None):
                continue
            yield from ((prop.name, mode) for mode in prop.modes)
        if scenario.checkpoint is not None:
            yield from ((EFFECTS, mode) for mode in JOINING_MODES)
            yield STATE, "paged"

    def _verdict(self, scenario: Scenario, case: Case | None, name: str, mode: str) -> tuple[Verdict, str | None]:
        try:
            is_seen = self._run(scenario, case, name, mode)
        except CheckFailed as error:
            return Verdict.FAIL, str(error)
        except OracleError as error:  # what the harness cannot judge
            return Verdict.VACUOUS, str(error)
        return Verdict.PASS if is_seen else Verdict.VACUOUS, None

    def _run(self, scenario: Scenario, case: Case | None, name: str, mode: str) -> bool:
        if name == STATE:
            return run_watched(scenario).num_steps > 0
        if name == EFFECTS:
            return self._runs.run(scenario, mode)[0].num_steps > 0
        if case is None:
            observed_effects(scenario, run_symbolic(scenario, mode), EOS_TOKEN_IDS)
            return True
        prop = next(prop for prop in PROPERTIES if prop.name == name)
        return observe(prop, case, mode).witnessed


def failing_checks(figures: Sequence[CheckFigure]) -> list[FailingCheck]:
    """Gives the checks that fail, in their order, and of each name the first."""
    failing = {figure.name: figure for figure in reversed(figures) if figure.verdict == Verdict.FAIL}
    return [FailingCheck(figure.name, figure.mode, figure.message or "") for figure in reversed(failing.values())]

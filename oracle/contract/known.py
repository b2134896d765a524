"""Deviations that are known: a file names them, each with its reason, and one that is not met any more is told."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.contract.findings import Finding
from oracle.contract.scenario import EngineScenario
from oracle.errors import ScenarioError
from oracle.family_shapes import family_of


@dataclass(frozen=True)
class KnownDeviation:
    """One deviation that an engine is known to have.

    Attributes:
        check: The check that fails.
        reason: Why it is let be; shown beside it.
        blame: What the finding has to blame, such as a parameter; None for anything.
        family: The model family, of which any variant will do, or one variant; None for any.
        knobs: Knob values that the engine has to be opened with.
        parameters: Parameters that the request has to have.
    """

    check: str
    reason: str
    blame: str | None = None
    family: str | None = None
    knobs: tuple[tuple[str, Any], ...] = ()
    parameters: tuple[str, ...] = ()

    def covers(self, finding: Finding, scenario: EngineScenario | None) -> bool:
        """Tells whether a finding is this deviation."""
        if finding.check != self.check or (self.blame is not None and self.blame not in finding.blame):
            return False
        if scenario is None:
            return self.family is None and not self.knobs and not self.parameters
        requests = [request for request in scenario.requests if finding.request_id in (None, request.request_id)]
        return (
            (self.family is None or (scenario.family is not None and self._names(scenario.family.family)))
            and all(scenario.knobs.get(name) == value for name, value in self.knobs)
            and (not self.parameters or any(set(self.parameters) <= set(request.parameters) for request in requests))
        )

    def _names(self, shape: str) -> bool:
        return self.family in (shape, family_of(shape))

    def __str__(self) -> str:
        """Gives it in one line."""
        parts = [self.check, self.blame, self.family, *(f"{name}={value}" for name, value in self.knobs)]
        return " × ".join(str(part) for part in (*parts, *self.parameters) if part is not None)


def load_known(path: Path) -> tuple[KnownDeviation, ...]:
    """Reads a file of known deviations: a JSON list of objects with the fields of `KnownDeviation`.

    Raises:
        ScenarioError: The file holds something else.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            KnownDeviation(
                **{
                    **entry,
                    "knobs": tuple(entry.get("knobs", {}).items()),
                    "parameters": tuple(entry.get("parameters", ())),
                }
            )
            for entry in entries
        )
    except (json.JSONDecodeError, TypeError, AttributeError) as error:
        message = f"{path} holds no list of known deviations: {type(error).__name__}: {error}"
        raise ScenarioError(message, path=path) from error


def first_cover(
    known: Sequence[KnownDeviation], finding: Finding, scenario: EngineScenario | None
) -> KnownDeviation | None:
    """Gives the first known deviation that a finding is; None if it is new."""
    return next((deviation for deviation in known if deviation.covers(finding, scenario)), None)

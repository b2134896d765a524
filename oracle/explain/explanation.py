"""What does an explanation hold? One tree of plain data: from the first token that parts to what is to blame."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Union, get_args, get_origin

from oracle.errors import ScenarioError
from oracle.explain.clues import Blame, FirstOperation, FirstRead, FirstToken, FirstWrite, Rung
from oracle.explain.course import HeatMap, Step

EXPLANATION_VERSION = 1
"""Raised whenever an older document would be read wrongly."""


class Need(StrEnum):
    """What a feature of a schedule is to a failure."""

    NEEDED = "needed"
    """Without it the case passes."""

    NOT_NEEDED = "not needed"
    """Without it the case fails as before."""

    NOT_PRESENT = "not present"
    """The case does not have it, or cannot do without it."""


@dataclass(frozen=True)
class CheckFigure:
    """One check on the case.

    Attributes:
        name: The property, or the check of a contract.
        mode: The mode it was held to, or the engine.
        verdict: "pass", "fail" or "vacuous"; of an engine's findings "wrong", "rounded" or "tied".
        message: What was said; None where nothing was found.
    """

    name: str
    mode: str
    verdict: str
    message: str | None = None


@dataclass(frozen=True)
class Feature:
    """One feature of a schedule, turned off by itself.

    Attributes:
        name: Its name.
        need: Whether the failure needs it.
        change: What was changed to turn it off, in words.
    """

    name: str
    need: Need
    change: str


@dataclass(frozen=True)
class Explanation:
    """Everything that was found out about a failing case.

    Attributes:
        kind: "schedule" for `refinfer`, "symbolic" for its symbolic model, "engine" for an engine in the dock.
        subject: The mode, or the engine's name.
        check: The check that is explained.
        message: What it said.
        blame: What is to blame.
        checks: Every check that was run on the case.
        rungs: How far the ladder was climbed, in order.
        token: The first output that parts; None if none does.
        write: The first key or value that was computed otherwise; None if none was.
        read: The first that was read otherwise than written; None if none was.
        operation: The first operation to blame; None if none is.
        features: What the failure needs of its schedule.
        minimal: A smallest set of features that still fails; None if it was not searched.
        steps: What happened, step by step.
        heat: The differences of every sample.
        scenario: The case itself.
        command: What runs it again.
        survives_watching: Whether the failure came while everything was watched; None if it was not watched.
        seconds: How long the explanation took.
    """

    kind: str
    subject: str
    check: str
    message: str
    blame: Blame
    checks: tuple[CheckFigure, ...]
    rungs: tuple[Rung, ...]
    token: FirstToken | None
    write: FirstWrite | None
    read: FirstRead | None
    operation: FirstOperation | None
    features: tuple[Feature, ...]
    minimal: tuple[str, ...] | None
    steps: tuple[Step, ...]
    heat: tuple[HeatMap, ...]
    scenario: dict[str, Any]
    command: str
    survives_watching: bool | None
    seconds: float

    def to_data(self) -> dict[str, Any]:
        """Gives it as plain data for JSON, with a version number."""
        return {"explanation": EXPLANATION_VERSION, **asdict(self)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Explanation":
        """Reads plain data.

        Raises:
            ScenarioError: It is no explanation, or one of another version.
        """
        version = data.get("explanation")
        if version != EXPLANATION_VERSION:
            message = f"the explanation is of version {version!r}, and {EXPLANATION_VERSION} is read here"
            raise ScenarioError(message, version=version)
        try:
            explanation: Explanation = _read(cls, {key: value for key, value in data.items() if key != "explanation"})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"the data is no explanation: {type(error).__name__}: {error}"
            raise ScenarioError(message) from error
        return explanation


def _read(expected: Any, value: Any) -> Any:
    """Makes a value of a type out of what JSON has kept of it."""
    if is_dataclass(expected) and isinstance(expected, type):
        types = {field.name: field.type for field in fields(expected)}
        return expected(**{name: _read(types[name], own) for name, own in value.items()})
    origin = get_origin(expected)
    if origin in (Union, UnionType):
        chosen = [own for own in get_args(expected) if own is not type(None)]
        return None if value is None else _read(chosen[0], value)
    if origin is tuple:
        inner = get_args(expected)
        kinds = [inner[0]] * len(value) if inner[1:] == (Ellipsis,) else inner
        return tuple(_read(kind, own) for kind, own in zip(kinds, value, strict=True))
    return Need(value) if expected is Need else value

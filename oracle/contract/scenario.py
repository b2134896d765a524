"""One run of an engine as plain data: model, settings, what ran before, requests; saved and loaded as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from oracle.engines.messages import EngineRequest
from oracle.errors import ScenarioError
from oracle.families import FamilySpec

ENGINE_SCENARIO_VERSION = 1
"""Raised whenever an older file would no longer mean the same run."""


@dataclass(frozen=True)
class EngineScenario:
    """What an engine is made to do, in full.

    Attributes:
        requests: The requests of the run that is judged.
        knobs: How the engine is opened.
        family: The generated checkpoint; None stands for one that is named beside the scenario.
        before: Runs that come first in the same engine, so that its caches are warm.
        engine: The engine it was found on, for the reader.
        check: The check that failed on it; "refusals" and "law" judge by another way than a run of its requests.
    """

    requests: tuple[EngineRequest, ...]
    knobs: dict[str, Any] = field(default_factory=dict)
    family: FamilySpec | None = field(default_factory=FamilySpec)
    before: tuple[tuple[EngineRequest, ...], ...] = ()
    engine: str = ""
    check: str = ""

    def to_json(self) -> str:
        """Gives it as a JSON document."""
        return json.dumps({"engine_scenario": ENGINE_SCENARIO_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "EngineScenario":
        """Reads a JSON document.

        Raises:
            ScenarioError: It is of another version, or none at all.
        """
        try:
            data = json.loads(text)
            version = data.pop("engine_scenario")
            if version != ENGINE_SCENARIO_VERSION:
                message = f"the scenario is of version {version}, and {ENGINE_SCENARIO_VERSION} is read here"
                raise ScenarioError(message, version=version)
            family = data["family"]
            if family is not None:
                family = FamilySpec(**{**family, "eos_token_ids": tuple(family["eos_token_ids"])})
            return cls(
                requests=_requests(data["requests"]),
                knobs=data["knobs"],
                family=family,
                before=tuple(_requests(run) for run in data["before"]),
                engine=data["engine"],
                check=data["check"],
            )
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            message = f"the text is no scenario of an engine: {type(error).__name__}: {error}"
            raise ScenarioError(message) from error

    @classmethod
    def load(cls, path: Path) -> "EngineScenario":
        """Reads a file.

        Raises:
            ScenarioError: It holds no scenario of an engine.
        """
        return cls.from_json(path.read_text(encoding="utf-8"))

    @classmethod
    def is_in(cls, path: Path) -> bool:
        """Tells whether a file holds a scenario of an engine; one that cannot be read holds none."""
        try:
            return cls.is_one(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return False

    @staticmethod
    def is_one(text: str) -> bool:
        """Tells whether a JSON document is a scenario of an engine, and not of `refinfer`."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError:
            return False
        return isinstance(data, dict) and "engine_scenario" in data


def _requests(data: list[dict[str, Any]]) -> tuple[EngineRequest, ...]:
    return tuple(EngineRequest.from_data(request) for request in data)

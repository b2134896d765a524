"""What an engine gave once, to be held against another: a new build against the old one, or another engine."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oracle.contract.drawing import is_legal
from oracle.contract.scenario import EngineScenario
from oracle.contract.watched import WatchedEngine
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.messages import EngineRequest, EngineRun
from oracle.errors import EngineError, ScenarioError
from oracle.families import cached_family_checkpoint

RECORDING_VERSION = 1
"""Raised whenever an older file would be misread."""

Against = Callable[[EngineScenario], EngineRun | None]
"""Gives what another engine gave for a scenario's requests; None where nothing is known of it."""


def key_of(scenario: EngineScenario) -> str:
    """Gives what two scenarios have to share for the same outputs to be due: model and requests, but no settings."""
    family = None if scenario.family is None else asdict(scenario.family)
    return json.dumps([family, [request.to_data() for request in scenario.requests]], sort_keys=True)


@dataclass
class Recording:
    """What an engine gave, scenario by scenario.

    Attributes:
        engine: Its name and version.
        run_by_key: Its runs, by what decides the outputs.
    """

    engine: str
    run_by_key: dict[str, Any] = field(default_factory=dict)

    def add(self, scenario: EngineScenario, run: EngineRun) -> None:
        """Keeps a run; the first one of equal scenarios stays."""
        self.run_by_key.setdefault(key_of(scenario), run.to_data())

    def find(self, scenario: EngineScenario) -> EngineRun | None:
        """Gives what was recorded for a scenario."""
        data = self.run_by_key.get(key_of(scenario))
        return None if data is None else EngineRun.from_data(json.loads(json.dumps(data)))

    def save(self, path: Path) -> None:
        """Writes it as JSON."""
        data = {"recording": RECORDING_VERSION, "engine": self.engine, "runs": self.run_by_key}
        path.write_text(json.dumps(data), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """Reads a file.

        Raises:
            ScenarioError: It holds no recording of this version.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            version = data["recording"]
            if version != RECORDING_VERSION:
                message = f"{path} is a recording of version {version}, and {RECORDING_VERSION} is read here"
                raise ScenarioError(message, version=version)
            return cls(data["engine"], dict(data["runs"]))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            message = f"{path} holds no recording: {type(error).__name__}: {error}"
            raise ScenarioError(message, path=path) from error


class OtherEngine:
    """Another engine that runs what the one in the dock runs, with the simplest value of each of its own settings.

    Args:
        engine: The other engine.
        folder: A checkpoint instead of generated ones.
    """

    def __init__(self, engine: EngineAdapter, folder: Path | None = None) -> None:
        self._engine = WatchedEngine(engine)
        self._folder = folder
        self._opened: Path | None = None
        self._declaration = self._engine.declare()
        self._knobs = {name: values[0] for name, values in self._declaration.knobs.items()}

    def find(self, scenario: EngineScenario) -> EngineRun | None:
        """Runs a scenario's requests; None where it does not take the model, or one of their parameters."""
        if not all(is_legal(self._declaration, request.parameters) for request in scenario.requests):
            return None
        folder = self._folder if scenario.family is None else cached_family_checkpoint(scenario.family)
        if folder is None:
            return None
        try:
            if folder != self._opened:
                self._opened = None
                self._engine.open(str(folder), self._knobs)
                self._opened = folder
            return self._run(scenario.requests)
        except (Refused, EngineError):
            self._opened = None
            return None

    def _run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """Runs requests together, or where the engine does not take them like that, one by one."""
        declaration = self._declaration
        if "arrivals" not in declaration.capabilities:
            requests = [replace(request, arrival=0) for request in requests]
        if "aborts" not in declaration.capabilities:
            requests = [replace(request, abort_after=None) for request in requests]
        if len(requests) <= declaration.max_num_requests and not declaration.shares_parameters:
            return self._engine.run(requests)
        runs = [self._engine.run([request]) for request in requests]
        return EngineRun(tuple(output for run in runs for output in run.outputs))

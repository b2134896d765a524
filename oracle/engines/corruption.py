"""Adapters corrupted on purpose: what a right engine gave, spoiled on its way to the harness.

Each function below runs requests and spoils something; its docstring says what. Where nothing fits, such as no score
to be changed, the run stays as it is.
"""

import math
import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample
from oracle.engines.teaching_engine import TeachingEngine
from oracle.errors import EngineUnavailable

Requests = Sequence[EngineRequest]
SampleChange = Callable[[EngineSample], EngineSample | None]
"""Gives another sample, or None where there is nothing to change."""


class CorruptedEngine:
    """An adapter whose runs are spoiled.

    Args:
        adapter: The engine.
        corruption: One of `CORRUPTIONS`.

    Attributes:
        adapter: The engine.
        num_runs: Runs since it was opened.

    Raises:
        EngineUnavailable: No corruption has this name.
    """

    def __init__(self, adapter: EngineAdapter, corruption: str) -> None:
        if corruption not in CORRUPTIONS:
            message = f"corruption {corruption!r} is unknown; known are {', '.join(CORRUPTIONS)}"
            raise EngineUnavailable(message, name=corruption)
        self.adapter = adapter
        self.num_runs = 0
        self._corruption = corruption

    def declare(self) -> EngineDeclaration:
        """Promises what the engine promises."""
        declaration = self.adapter.declare()
        return replace(declaration, name=f"{declaration.name}-{self._corruption}")

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self.num_runs = 0
        self.adapter.open(folder, knobs)

    def run(self, requests: Requests) -> EngineRun:
        """Runs requests, and spoils what comes."""
        run = CORRUPTIONS[self._corruption].corrupt(self, requests)
        self.num_runs += 1
        return run

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        self.adapter.close()

"""An engine that is watched: how long it takes, and what it counts."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun

COUNTED_BY_MAXIMUM = ("max_batch",)
"""Witnesses of which the largest counts; others are added up."""


class WatchedEngine:
    """Passes everything on to an engine, and keeps count.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: EngineAdapter) -> None:
        self._engine = engine
        self.seconds = 0.0
        self.witnesses: Counter[str] = Counter()

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return self._engine.declare()

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        begin = time.monotonic()
        try:
            self._engine.open(folder, knobs)
        finally:
            self.seconds += time.monotonic() - begin

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`."""
        begin = time.monotonic()
        try:
            run = self._engine.run(requests)
        finally:
            self.seconds += time.monotonic() - begin
        for name, number in run.witnesses.items():
            if name in COUNTED_BY_MAXIMUM:
                self.witnesses[name] = max(number, self.witnesses[name])
            else:
                self.witnesses[name] += number
        return run

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        self._engine.close()

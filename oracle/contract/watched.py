"""An engine that is watched: how long it takes, what it counts, and that whatever it raises is a verdict about it."""

import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun
from oracle.errors import EngineError, EngineProtocolError, EngineRaised

COUNTED_BY_MAXIMUM = ("max_batch",)
"""Witnesses of which the largest counts; others are added up."""


class WatchedEngine:
    """Passes everything on to an engine, and keeps count.

    What an engine in this process raises becomes what one in a process of its own would have answered.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: EngineAdapter) -> None:
        self._engine = engine
        self.seconds = 0.0
        self.witnesses: Counter[str] = Counter()

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        with self._watching():
            return self._engine.declare()

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        with self._watching():
            self._engine.open(folder, knobs)

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`.

        Raises:
            EngineError: The engine raised, refused a whole run, crashed, hung, or answered with something else.
        """
        try:
            with self._watching():
                run = self._engine.run(requests)
        except Refused as error:
            message = f"it refused a whole run, where a request is refused in its own output: {error}"
            raise EngineRaised(message) from error
        self._count(run.witnesses)
        return run

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        with self._watching():
            self._engine.close()

    def _count(self, witnesses: Mapping[str, Any]) -> None:
        for name, number in witnesses.items():
            if not isinstance(number, Integral):
                message = f"what the engine counted as {name} is {number!r}, and no whole number"
                raise EngineProtocolError(message, name=name)
            is_maximum = name in COUNTED_BY_MAXIMUM
            before = self.witnesses[name]
            self.witnesses[name] = max(int(number), before) if is_maximum else before + int(number)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        except (Refused, EngineError):
            raise
        # Broad on purpose: whatever the engine raises is its answer, and the harness goes on.
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise EngineRaised(message, traceback=traceback.format_exc()) from error
        finally:
            self.seconds += time.monotonic() - begin

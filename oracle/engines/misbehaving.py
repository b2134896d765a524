"""Adapters that hang, crash or babble on purpose, to be served in a process of their own.

They are written in the standard library alone, so that such a process starts at once.
"""

import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

_MOST_DESCRIPTORS = 64

Spoil = Callable[[EngineAdapter, Sequence[EngineRequest], int], EngineRun]
"""Runs requests on an engine and spoils what comes; the number is that of the runs before it."""


class EchoEngine:
    """An engine without a model: every request gets its last prompt token back, as often as it wants.

    Args:
        spoil: What it does instead.
    """

    def __init__(self, spoil: Spoil | None = None) -> None:
        self._spoil = spoil

    def declare(self) -> EngineDeclaration:
        """Claims nothing about tokens."""
        return EngineDeclaration(name="echo", contract="statistical")

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """Opens nothing."""

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """Answers, or misbehaves."""
        if self._spoil is not None:
            return self._spoil(EchoEngine(), requests, 0)
        return EngineRun(
            tuple(
                EngineOutput(own.request_id, (EngineSample(own.prompt_token_ids[-1:] * own.max_tokens, "length"),))
                for own in requests
            )
        )

    def close(self) -> None:
        """Closes nothing."""


def hang(_adapter: EngineAdapter, _requests: Sequence[EngineRequest], _: int) -> EngineRun:
    """The engine never answers."""
    while True:
        threading.Event().wait()


def crash(_adapter: EngineAdapter, _requests: Sequence[EngineRequest], _: int) -> EngineRun:
    """The engine's process ends."""
    sys.stderr.write("the engine crashes on purpose\n")
    sys.stderr.flush()
    os._exit(3)


def malformed_line(adapter: EngineAdapter, requests: Sequence[EngineRequest], _: int) -> EngineRun:
    """The engine writes a line of its own between its answers, into the pipe that is for them alone."""
    for descriptor in range(3, _MOST_DESCRIPTORS):
        with suppress(OSError):  # it is not open, or only to be read
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"INFO step 1: running 3, waiting 2\n")
    return adapter.run(requests)


def hanging_engine() -> EchoEngine:
    """An engine that never answers a run."""
    return EchoEngine(hang)


def crashing_engine() -> EchoEngine:
    """An engine whose process ends in a run."""
    return EchoEngine(crash)


def babbling_engine() -> EchoEngine:
    """An engine that writes between its answers."""
    return EchoEngine(malformed_line)

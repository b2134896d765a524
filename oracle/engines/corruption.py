"""Adapters corrupted on purpose: what a right engine gives is spoiled, and the harness must see that."""

import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from oracle.engines import spoiled_answers, spoiled_scores
from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun
from oracle.engines.teaching_engine import TeachingEngine
from oracle.errors import EngineUnavailable

_MOST_DESCRIPTORS = 64


def hang(_adapter: EngineAdapter, _requests: Sequence[EngineRequest], _: int) -> EngineRun:
    """The engine never answers; only for an engine in a process of its own."""
    while True:
        threading.Event().wait()


def crash(_adapter: EngineAdapter, _requests: Sequence[EngineRequest], _: int) -> EngineRun:
    """The engine's process ends; only for an engine in a process of its own."""
    sys.stderr.write("the engine crashes on purpose\n")
    sys.stderr.flush()
    os._exit(3)


def malformed_line(adapter: EngineAdapter, requests: Sequence[EngineRequest], _: int) -> EngineRun:
    """The engine writes to the pipe that is for answers; only for an engine in a process of its own."""
    for descriptor in range(3, _MOST_DESCRIPTORS):
        with suppress(OSError):  # it is not open, or only to be read
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"INFO step 1: running 3, waiting 2\n")
    return adapter.run(requests)


class Corruption(NamedTuple):
    """A way of spoiling runs.

    Attributes:
        spoil: Runs requests on an engine and spoils what comes; the number is that of the runs before it.
        check: Which check must fail on it; others may fail as well.
        target: Serves the teaching engine spoiled like this, where that takes a process of its own.
    """

    spoil: Callable[[EngineAdapter, Sequence[EngineRequest], int], EngineRun]
    check: str
    target: str | None = None

    @property
    def does(self) -> str:
        """What it does, in a sentence."""
        return (self.spoil.__doc__ or "").partition("\n")[0]


CORRUPTIONS: dict[str, Corruption] = {
    "token_changed": Corruption(spoiled_answers.token_changed, "tokens"),
    "answers_swapped": Corruption(spoiled_answers.answers_swapped, "tokens"),
    "parameters_dropped": Corruption(spoiled_answers.parameters_dropped, "tokens"),
    "early_end": Corruption(spoiled_answers.early_end, "ends"),
    "late_end": Corruption(spoiled_answers.late_end, "ends"),
    "reason_changed": Corruption(spoiled_answers.reason_changed, "ends"),
    "nothing_said": Corruption(spoiled_answers.nothing_said, "form"),
    "foreign_token": Corruption(spoiled_answers.foreign_token, "form"),
    "outputs_swapped": Corruption(spoiled_answers.outputs_swapped, "form"),
    "output_missing": Corruption(spoiled_answers.output_missing, "form"),
    "output_doubled": Corruption(spoiled_answers.output_doubled, "form"),
    "sample_missing": Corruption(spoiled_answers.sample_missing, "form"),
    "score_missing": Corruption(spoiled_scores.score_missing, "form"),
    "score_nan": Corruption(spoiled_scores.score_nan, "form"),
    "score_positive": Corruption(spoiled_scores.score_positive, "form"),
    "score_changed": Corruption(spoiled_scores.score_changed, "scores"),
    "top_score_changed": Corruption(spoiled_scores.top_score_changed, "scores"),
    "logit_changed": Corruption(spoiled_scores.logit_changed, "scores"),
    "prompt_score_changed": Corruption(spoiled_scores.prompt_score_changed, "prompt_scores"),
    "last_bit_in_company": Corruption(spoiled_scores.last_bit_in_company, "alone"),
    "last_bit_in_reverse": Corruption(spoiled_scores.last_bit_in_reverse, "order"),
    "last_bit_next_time": Corruption(spoiled_scores.last_bit_next_time, "repeat"),
    "last_bit_beside_aborts": Corruption(spoiled_scores.last_bit_beside_aborts, "aborts"),
    "samples_alike": Corruption(spoiled_answers.samples_alike, "samples"),
    "illegal_taken": Corruption(spoiled_answers.illegal_taken, "refusals"),
    "hang": Corruption(hang, "alive", "oracle.engines.corruption:hanging_engine"),
    "crash": Corruption(crash, "alive", "oracle.engines.corruption:crashing_engine"),
    "malformed_line": Corruption(malformed_line, "alive", "oracle.engines.corruption:babbling_engine"),
}
"""The corruptions by name; those of last bits show on engines that claim bits."""


class CorruptedEngine:
    """An adapter whose runs are spoiled.

    Args:
        adapter: The engine.
        corruption: One of `CORRUPTIONS`.

    Raises:
        EngineUnavailable: No corruption has this name.
    """

    def __init__(self, adapter: EngineAdapter, corruption: str) -> None:
        if corruption not in CORRUPTIONS:
            message = f"corruption {corruption!r} is unknown; known are {', '.join(CORRUPTIONS)}"
            raise EngineUnavailable(message, name=corruption)
        self._adapter = adapter
        self._num_runs = 0
        self._corruption = corruption

    def declare(self) -> EngineDeclaration:
        """Promises what the engine promises."""
        declaration = self._adapter.declare()
        return replace(declaration, name=f"{declaration.name}-{self._corruption}")

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self._num_runs = 0
        self._adapter.open(folder, knobs)

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """Runs requests, and spoils what comes."""
        run = CORRUPTIONS[self._corruption].spoil(self._adapter, requests, self._num_runs)
        self._num_runs += 1
        return run

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        self._adapter.close()


def hanging_engine() -> CorruptedEngine:
    """The teaching engine, which never answers a run."""
    return CorruptedEngine(TeachingEngine(), "hang")


def crashing_engine() -> CorruptedEngine:
    """The teaching engine, whose process ends in a run."""
    return CorruptedEngine(TeachingEngine(), "crash")


def babbling_engine() -> CorruptedEngine:
    """The teaching engine, which writes between its answers."""
    return CorruptedEngine(TeachingEngine(), "malformed_line")

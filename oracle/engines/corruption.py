"""Adapters corrupted on purpose: what a right engine gives is spoiled, and the harness must see that."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from oracle.engines import misbehaving, spoiled_answers, spoiled_scores
from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun
from oracle.engines.misbehaving import Spoil
from oracle.errors import EngineUnavailable


class Corruption(NamedTuple):
    """A way of spoiling runs.

    Attributes:
        spoil: Runs requests on an engine and spoils what comes; the number is that of the runs before it.
        check: Which check must fail on it; others may fail as well.
        target: An adapter that does this in a process of its own, where it must not be done in this one.
    """

    spoil: Spoil
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
    "hang": Corruption(misbehaving.hang, "alive", "oracle.engines.misbehaving:hanging_engine"),
    "crash": Corruption(misbehaving.crash, "alive", "oracle.engines.misbehaving:crashing_engine"),
    "malformed_line": Corruption(misbehaving.malformed_line, "alive", "oracle.engines.misbehaving:babbling_engine"),
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

"""The teaching engine with a fault that is chosen by name: a harness must not say of it that all is well."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from oracle.engines import faulty_choices, faulty_steps
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun
from oracle.engines.teaching_engine import TeachingEngine
from oracle.errors import EngineUnavailable


class Fault(NamedTuple):
    """A fault of an engine.

    Attributes:
        engine: The teaching engine with this fault.
        check: Which check must fail on it, others may fail as well; None where no output shows it, but what the
            engine counts does.
    """

    engine: type[TeachingEngine]
    check: str | None

    @property
    def does(self) -> str:
        """What it does, in a sentence."""
        return (self.engine.__doc__ or "").partition("\n")[0]


FAULTS: dict[str, Fault] = {
    "first_row_parameters": Fault(faulty_choices.FirstRowParameters, "tokens"),
    "bias_dropped": Fault(faulty_choices.BiasDropped, "tokens"),
    "penalty_leaks": Fault(faulty_choices.PenaltyLeaks, "tokens"),
    "penalty_of_output_only": Fault(faulty_choices.PenaltyOfOutputOnly, "tokens"),
    "top_k_of_batch": Fault(faulty_choices.TopKOfBatch, "tokens"),
    "chunk_positions": Fault(faulty_steps.ChunkPositions, "tokens"),
    "prefix_too_far": Fault(faulty_steps.PrefixTooFar, "tokens"),
    "min_tokens_ignored": Fault(faulty_choices.MinTokensIgnored, "ends"),
    "stop_token_late": Fault(faulty_choices.StopTokenLate, "ends"),
    "max_tokens_off_by_one": Fault(faulty_choices.MaxTokensOffByOne, "ends"),
    "neighbours_ignore_eos": Fault(faulty_choices.NeighboursIgnoreEos, "ends"),
    "first_token_goes_on": Fault(faulty_choices.FirstTokenGoesOn, "ends"),
    "stop_called_length": Fault(faulty_choices.StopCalledLength, "ends"),
    "preemption_forgets_length": Fault(faulty_steps.PreemptionForgetsLength, "ends"),
    "processed_logprobs": Fault(faulty_choices.ProcessedLogprobs, "scores"),
    "neighbours_logprobs": Fault(faulty_choices.NeighboursLogprobs, "scores"),
    "logits_changed_in_place": Fault(faulty_choices.LogitsChangedInPlace, "scores"),
    "neighbours_stop_tokens": Fault(faulty_choices.NeighboursStopTokens, "alone"),
    "rounding_by_row": Fault(faulty_steps.RoundingByRow, "order"),
    "suffix_positions": Fault(faulty_steps.SuffixPositions, "repeat"),
    "abort_shifts_rows": Fault(faulty_steps.AbortShiftsRows, "aborts"),
    "seed_ignored_in_company": Fault(faulty_choices.SeedIgnoredInCompany, "samples"),
    "row_in_seed": Fault(faulty_choices.RowInSeed, "samples"),
    "samples_alike": Fault(faulty_choices.SamplesAlike, "samples"),
    "temperature_twice": Fault(faulty_choices.TemperatureTwice, "law"),
    "outputs_in_order_of_ends": Fault(faulty_steps.OutputsInOrderOfEnds, "form"),
    "empty_success": Fault(faulty_steps.EmptySuccess, "refusals"),
    "two_ends_crash": Fault(faulty_steps.TwoEndsCrash, "alive"),
    "prefix_across_salts": Fault(faulty_steps.PrefixAcrossSalts, None),
}
"""The faults by name, sorted by the check that must fail."""


class FaultyEngine:
    """The teaching engine with one fault.

    Args:
        fault_name: One of `FAULTS`.

    Raises:
        EngineUnavailable: No fault has this name.
    """

    def __init__(self, fault_name: str) -> None:
        if fault_name not in FAULTS:
            message = f"fault {fault_name!r} is unknown; known are {', '.join(FAULTS)}"
            raise EngineUnavailable(message, name=fault_name)
        self.fault_name = fault_name
        self.fault = FAULTS[fault_name]
        self._engine = self.fault.engine()

    def declare(self) -> EngineDeclaration:
        """Promises what the teaching engine promises."""
        return replace(self._engine.declare(), name=f"faulty-{self.fault_name}")

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self._engine.open(folder, knobs)

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`."""
        return self._engine.run(requests)

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        self._engine.close()

"""Faults that are none, of the network, the steps, drawing and text: the same done in another way."""

from functools import cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from oracle.faults.registry import Area, Fault, Replacement, no_op
from refinfer.interfaces import AttentionView
from refinfer.model import Llama
from refinfer.model.mlp import LlamaMLP
from refinfer.model.model_input import ModelInput, RowLogits
from refinfer.numerics import PlainNumerics
from refinfer.sampling import StopStringWatcher, logits, sampler
from refinfer.scheduler import SchedulerOutput
from refinfer.scheduler import continuous as continuous_module
from refinfer.shapes import LogitsRow, Probabilities, ProcessedLogits
from refinfer.speculative import Draft, DraftRequest, NgramProposer
from refinfer.tokenizer import detokenizer

_Step = continuous_module._Step  # noqa: SLF001
_run = ModelInput.run
_output = _Step.output
_feed = StopStringWatcher.feed
_propose = NgramProposer.propose


@no_op(
    "halves_turned_apart",
    Area.POSITIONS,
    "each half of a head is turned by itself, with the same products and sums",
    PlainNumerics,
    "rotate",
)
def halves_turned_apart(self: PlainNumerics, vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # noqa: ARG001
    """Writes out what the turned copy stands for."""
    first, second = vectors.chunk(2, dim=-1)
    (first_cos, second_cos), (first_sin, second_sin) = (table[:, None, :].chunk(2, dim=-1) for table in (cos, sin))
    return torch.cat((first * first_cos + -second * first_sin, second * second_cos + first * second_sin), dim=-1)


@no_op(
    "up_before_gate",
    Area.MODEL,
    "the two projections of the MLP know nothing of each other, and a product has no order of its two factors",
    LlamaMLP,
    "forward",
)
def up_before_gate(self: LlamaMLP, hidden_states: Tensor) -> Tensor:
    """Projects up first."""
    up = self.up_proj(hidden_states)
    output: Tensor = self.down_proj(up * self.numerics.silu(self.gate_proj(hidden_states)))
    return output


@no_op("logits_copied", Area.MODEL, "logits are read, and a copy reads the same", ModelInput, "run")
def logits_copied(self: ModelInput, model: Llama, view: AttentionView) -> list[RowLogits]:
    """Gives each row memory of its own."""
    return [own.copy() for own in _run(self, model, view)]


@no_op(
    "rows_packed_backwards",
    Area.SCHEDULER,
    "a row's place in its batch says nothing of the request, so that rows may be packed in any order",
    _Step,
    "output",
    "batch",
)
def rows_packed_backwards(self: _Step) -> SchedulerOutput:
    """Turns the rows around once everything is decided."""
    output = _output(self)
    return output._replace(rows=output.rows[::-1])


@no_op(
    "frequencies_taken_one_by_one",
    Area.SAMPLING,
    "each token's count is multiplied by the penalty and taken away once, in whatever order tokens come",
    logits,
    "apply_frequency_penalty",
    "frequency penalty",
)
def frequencies_taken_one_by_one(row: ProcessedLogits, penalty: float, output_token_ids: list[int]) -> ProcessedLogits:
    """Goes through the ids from the highest on."""
    penalised = row.copy()
    for token_id in sorted(set(output_token_ids), reverse=True):
        penalised[token_id] -= penalty * float(list(output_token_ids).count(token_id))
    return penalised


@no_op(
    "top_tokens_by_sorting_all",
    Area.SAMPLING,
    "a stable sort of the whole row puts the lowest id first among equals, as the partial one does",
    logits,
    "top_token_ids",
    "top_k",
)
def top_tokens_by_sorting_all(row: LogitsRow, num_tokens: int) -> np.ndarray:
    """Sorts everything."""
    return np.argsort(-row, kind="stable")[:num_tokens]


@no_op(
    "distribution_added_up_in_plain_python",
    Area.SAMPLING,
    "a cumulative sum is added up from the first on, by whichever of the two libraries",
    sampler,
    "inverse_cdf_token_id",
    "temperature",
)
def distribution_added_up_in_plain_python(probabilities: Probabilities, uniform: float) -> int:
    """Adds up one by one."""
    cumulative = np.array(list(accumulate(probabilities.tolist())))
    total = cumulative[-1]
    found = cumulative.searchsorted(uniform * total, side="right")
    return int(min(found, cumulative.searchsorted(total, side="left")))


draws_remembered = Fault(
    "draws_remembered",
    Area.SAMPLING,
    "a random number follows from seed, sample and position, so that one that is remembered is the same",
    (Replacement(sampler, "draw_uniform", cache(sampler.draw_uniform)),),
    needs=("seeded draws",),
)

shorter_context_decoded = Fault(
    "shorter_context_decoded",
    Area.TEXT,
    "how many tokens are decoded once more with each new one decides what that costs, not what it gives",
    (Replacement(detokenizer, "_MAX_CONTEXT", 16), Replacement(detokenizer, "_KEPT_CONTEXT", 8)),
)


@no_op(
    "text_watched_by_characters",
    Area.STREAMING,
    "into which pieces a text is cut makes no difference to what is found in it, and what is held back",
    StopStringWatcher,
    "feed",
    "stop string",
)
def text_watched_by_characters(self: StopStringWatcher, text: str, *, can_stop: bool = True) -> str:
    """Feeds one character at a time."""
    return "".join(_feed(self, character, can_stop=can_stop) for character in text)


@no_op(
    "one_token_less_guessed",
    Area.SPECULATIVE,
    "a guess decides how many tokens a step gives, and never which",
    NgramProposer,
    "propose",
    "speculation",
)
def one_token_less_guessed(self: NgramProposer, requests: list[DraftRequest]) -> list[Draft]:
    """Leaves the last token of each guess out."""
    return [draft.first(max(0, len(draft.token_ids) - 1)) for draft in _propose(self, requests)]


NO_OPS = (
    halves_turned_apart,
    up_before_gate,
    logits_copied,
    rows_packed_backwards,
    frequencies_taken_one_by_one,
    top_tokens_by_sorting_all,
    distribution_added_up_in_plain_python,
    draws_remembered,
    shorter_context_decoded,
    text_watched_by_characters,
    one_token_less_guessed,
)
"""Faults that are none."""

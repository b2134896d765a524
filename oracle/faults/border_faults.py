"""Faults at the border of two chunks, where a step goes on from what an earlier one has left."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from oracle.faults.registry import Area, attention_fault, one_replacement
from refinfer.attention_layout import AttentionLayout
from refinfer.engine.core import EngineCore
from refinfer.interfaces import AttentionFunction, AttentionView
from refinfer.model import Llama
from refinfer.model.model_input import ModelInput, RowLogits
from refinfer.numerics import InvariantNumerics, PlainNumerics
from refinfer.sampling import SampleContext, TokenLogprob, token_logprobs
from refinfer.scheduler import RequestQueues, RequestState, ScheduledRow

_advance = RequestQueues.advance
_sample_context = RequestState.sample_context
_prompt_logprobs = EngineCore._prompt_logprobs  # noqa: SLF001
_run = ModelInput.run
_attention = InvariantNumerics.attention


@attention_fault(
    "chunk_sees_no_prefix",
    Area.MASKS,
    "the mask of a chunk has columns for its own tokens only, so that what is cached before it is hidden",
    models=("huggingface/candle#3743 (3.06)",),
    component=("attention_layout.py", "numerics/plain.py", "numerics/invariant.py"),
    needs=("chunks",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def chunk_sees_no_prefix(
    attend: AttentionFunction, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
) -> Tensor:
    """Attends as if the request began with the chunk."""
    if not 1 < layout.num_queries < layout.num_keys or any(layout.num_padding_tokens):
        return attend(queries, keys, values, layout)
    start = layout.num_keys - layout.num_queries
    own = AttentionLayout(layout.num_queries, layout.num_queries)
    return attend(queries, keys[:, :, start:], values[:, :, start:], own)


@attention_fault(
    "empty_places_attended",
    Area.MASKS,
    "a token that is decoded also looks at the places of the cache that hold no token yet",
    models=("huggingface/transformers#30400 (4.02)",),
    component=("attention_layout.py", "numerics/plain.py", "numerics/invariant.py"),
    needs=(),
    seen_by=("reference logits", "bitwise", "greedy", "poison"),
)
def empty_places_attended(
    attend: AttentionFunction, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
) -> Tensor:
    """Takes the length of the buffer for the number of tokens."""
    is_decode = layout.num_queries == 1
    whole = replace(layout, num_keys=keys.shape[2], num_missing_tokens=(0,))
    return attend(queries, keys, values, whole if is_decode else layout)


@one_replacement(
    "discarded_draws_move_the_stream",
    Area.SAMPLING,
    "each chunk but the last draws a token that nobody gets, so that what a seed gives depends on the chunks",
    RequestQueues,
    "advance",
    models=("vllm-project/vllm-metal#590 (10.27)",),
    component=("scheduler/queues.py", "engine/core.py", "sampling/sampler.py"),
    needs=("seeded draws", "chunks"),
    seen_by=("seeded", "symbolic"),
)
def discarded_draws_move_the_stream(
    self: RequestQueues, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None
) -> None:
    """Moves on to another stream."""
    _advance(self, rows, nums_rejected)
    for row in rows:
        if not row.emits and not row.state.is_finished:
            request = row.state.request
            row.state.request = replace(request, seed=(request.seed + 1) % 2**64)


@one_replacement(
    "repetition_sees_the_last_chunk_only",
    Area.SAMPLING,
    "for the first token the repetition penalty sees of the prompt what ran in the step that gave the token",
    RequestState,
    "sample_context",
    models=("vllm-project/vllm-metal#69 (10.03)",),
    component=("scheduler/request.py", "sampling/logits.py"),
    needs=("repetition penalty", "chunks"),
    seen_by=("greedy", "seeded", "symbolic"),
)
def repetition_sees_the_last_chunk_only(self: RequestState, eos_token_ids: frozenset[int]) -> SampleContext:
    """Leaves out what was computed before."""
    context = _sample_context(self, eos_token_ids)
    if self.num_output_tokens:
        return context
    return replace(context, prompt_token_ids=context.prompt_token_ids[self.num_computed_tokens :])


@one_replacement(
    "prompt_logprobs_counted_from_the_chunk",
    Area.SAMPLING,
    "the log-probabilities of a later chunk are those of tokens counted from the first one of the prompt",
    EngineCore,
    "_prompt_logprobs",
    models=("vllm-project/vllm#5162 (14.07)", "vllm-project/vllm#6223 (14.20)"),
    component=("engine/core.py",),
    needs=("prompt logprobs", "chunks"),
    seen_by=("symbolic", "contract"),
)
def prompt_logprobs_counted_from_the_chunk(
    self: EngineCore, row: ScheduledRow, logits: RowLogits
) -> list[dict[int, TokenLogprob]]:
    """Pairs logits with the wrong tokens."""
    state, start = row.state, row.state.num_computed_tokens
    num_listed = len(_prompt_logprobs(self, row, logits))
    stop = min(start + row.num_scheduled_tokens, state.num_prompt_tokens - 1)
    places = range(stop - num_listed - start, stop - start)
    num_wanted = state.request.params.prompt_logprobs or 0
    return [token_logprobs(logits[place], state.token_ids[place + 1], num_wanted) for place in places]


@one_replacement(
    "last_chunk_read_one_early",
    Area.MODEL,
    "of the last chunk of a prompt the logits before the last ones give the token",
    ModelInput,
    "run",
    models=("mlx-node/mlx-node#47 (7.18)",),
    component=("model/model_input.py", "engine/model_runner.py"),
    needs=("chunks",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def last_chunk_read_one_early(self: ModelInput, model: Llama, view: AttentionView) -> list[RowLogits]:
    """Asks for one row more, and leaves the last one out."""
    more, end = [], 0
    for num_tokens, num_logits in zip(self.num_tokens, self.num_logits, strict=True):
        goes_on = bool(self.position_ids[end])
        more.append(int(goes_on and num_tokens > 1 and num_logits == 1))
        end += num_tokens
    nums = tuple(own + extra for own, extra in zip(self.num_logits, more, strict=True))
    logits = _run(replace(self, num_logits=nums), model, view)
    return [own[: len(own) - extra] for own, extra in zip(logits, more, strict=True)]


@one_replacement(
    "warm_prompts_attend_plainly",
    Area.NUMERICS,
    "a prompt that goes on from cached tokens is attended to by another kernel than one that begins",
    InvariantNumerics,
    "attention",
    models=("AtomaAI/atoma-infer#257 (15.06)",),
    component=("numerics/invariant.py",),
    needs=("chunks",),
    seen_by=("bitwise",),
)
def warm_prompts_attend_plainly(
    self: InvariantNumerics, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
) -> Any:
    """Chooses by the shape of the step."""
    is_warm = 1 < layout.num_queries < layout.num_keys
    return (PlainNumerics.attention if is_warm else _attention)(self, queries, keys, values, layout)


FAULTS = (
    chunk_sees_no_prefix,
    empty_places_attended,
    discarded_draws_move_the_stream,
    repetition_sees_the_last_chunk_only,
    prompt_logprobs_counted_from_the_chunk,
    last_chunk_read_one_early,
    warm_prompts_attend_plainly,
)
"""Faults of borders."""

"""Faults of picking and stopping."""

from collections.abc import Container
from typing import Any

from torch import Tensor

from oracle.faults.registry import Area, one_replacement
from refinfer.engine import generation
from refinfer.sampling import FinishReason, finish_reason
from refinfer.scheduler import StaticScheduler


@one_replacement(
    "ties_to_highest_id",
    Area.SAMPLING,
    "among equal logits the highest id wins",
    generation,
    "greedy_token_ids",
)
def ties_to_highest_id(logits: Tensor) -> list[int]:
    """Takes the last of equals."""
    last = logits.shape[-1] - 1
    token_ids: list[int] = (last - logits.flip(-1).argmax(dim=-1)).tolist()
    return token_ids


@one_replacement(
    "first_eos_only",
    Area.SAMPLING,
    "of several end-of-sequence ids only the first ends a request",
    generation,
    "finish_reason",
)
def first_eos_only(*, eos_token_ids: Container[int], **rest: Any) -> FinishReason | None:
    """Knows one id."""
    ids = sorted(eos_token_ids)[:1]  # type: ignore[call-overload]  # a frozen set here
    return finish_reason(eos_token_ids=ids, **rest)


@one_replacement(
    "eos_ignored_as_first_token",
    Area.SAMPLING,
    "an end-of-sequence id right after the prompt does not end the request",
    generation,
    "finish_reason",
)
def eos_ignored_as_first_token(
    *, num_output_tokens: int, eos_token_ids: Container[int], **rest: Any
) -> FinishReason | None:
    """Looks for it from the second token on."""
    ids: Container[int] = eos_token_ids if num_output_tokens > 1 else ()
    return finish_reason(num_output_tokens=num_output_tokens, eos_token_ids=ids, **rest)


@one_replacement(
    "batch_ends_together",
    Area.SAMPLING,
    "a static batch ends when its first member does",
    StaticScheduler,
    "has_unfinished_requests",
)
def batch_ends_together(self: StaticScheduler) -> bool:
    """Stops at the first end."""
    return bool(self._waiting) or not any(state.is_finished for state in self._batch)


FAULTS = (ties_to_highest_id, first_eos_only, eos_ignored_as_first_token, batch_ends_together)

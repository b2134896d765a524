"""Faults of picking and stopping."""

from collections.abc import Container
from typing import Any

import numpy as np

from oracle.faults.registry import Area, one_replacement
from refinfer.engine import core
from refinfer.sampling import Finish, finish, sampler
from refinfer.scheduler import StaticScheduler


@one_replacement(
    "ties_to_highest_id",
    Area.SAMPLING,
    "among equal logits the highest id wins",
    sampler,
    "highest_token_id",
    models=None,
    component=("sampling/sampler.py", "sampling/logits.py"),
    needs=("ties",),
    seen_by=("greedy", "symbolic"),
)
def ties_to_highest_id(logits: np.ndarray) -> int:
    """Takes the last of equals."""
    return len(logits) - 1 - int(logits[::-1].argmax())


@one_replacement(
    "first_eos_only",
    Area.SAMPLING,
    "of several end-of-sequence ids only the first ends a request",
    core,
    "finish",
    models=None,
    component=("sampling/stopping.py", "engine/core.py"),
    needs=("several eos ids",),
    seen_by=("greedy", "contract"),
)
def first_eos_only(*, eos_token_ids: Container[int], **rest: Any) -> Finish | None:
    """Knows one id."""
    ids = sorted(eos_token_ids)[:1]  # type: ignore[call-overload]  # a frozen set here
    return finish(eos_token_ids=ids, **rest)


@one_replacement(
    "eos_ignored_as_first_token",
    Area.SAMPLING,
    "an end-of-sequence id right after the prompt does not end the request",
    core,
    "finish",
    models=("bytedance/lightseq#236 (11.02)",),
    component=("sampling/stopping.py", "engine/core.py"),
    needs=(),
    seen_by=("greedy", "symbolic", "contract"),
)
def eos_ignored_as_first_token(*, num_output_tokens: int, eos_token_ids: Container[int], **rest: Any) -> Finish | None:
    """Looks for it from the second token on."""
    ids: Container[int] = eos_token_ids if num_output_tokens > 1 else ()
    return finish(num_output_tokens=num_output_tokens, eos_token_ids=ids, **rest)


@one_replacement(
    "batch_ends_together",
    Area.SAMPLING,
    "a static batch ends when its first member does",
    StaticScheduler,
    "has_unfinished_requests",
    models=None,
    component=("scheduler/static.py",),
    needs=("static batch", "uneven ends"),
    seen_by=("greedy", "symbolic", "lifecycle", "contract"),
)
def batch_ends_together(self: StaticScheduler) -> bool:
    """Stops at the first end."""
    return bool(self.waiting) or not any(state.is_finished for state in self.running)


FAULTS = (ties_to_highest_id, first_eos_only, eos_ignored_as_first_token, batch_ends_together)

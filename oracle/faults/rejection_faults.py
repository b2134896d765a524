"""Faults of what is left of guessed tokens that did not stay: counts, blocks, what can be found of them."""

from collections.abc import Sequence

from oracle.faults.registry import Area, one_replacement
from refinfer.scheduler import BlockSpace, RequestQueues, RequestState, ScheduledRow
from refinfer.scheduler.request import held_blocks

_advance = RequestQueues.advance
_preempt = RequestQueues.preempt


@one_replacement(
    "rejected_tokens_count_as_computed",
    Area.SPECULATIVE,
    "a request advances past guessed tokens that were rejected",
    RequestQueues,
    "advance",
    models=None,
    component=("scheduler/queues.py", "engine/core.py"),
    needs=("speculation", "rejected guess"),
    seen_by=("symbolic", "state", "bitwise", "greedy"),
)
def rejected_tokens_count_as_computed(
    self: RequestQueues, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None
) -> None:
    """Advances by all that ran."""
    _advance(self, rows, [0] * len(nums_rejected or rows))


@one_replacement(
    "rejected_tokens_published",
    Area.SPECULATIVE,
    "blocks with keys and values of rejected tokens can be found by their requests' real tokens",
    RequestQueues,
    "advance",
    models=("vllm-project/vllm#18668 (9.06)",),
    component=("scheduler/queues.py", "scheduler/block_space.py"),
    needs=("speculation", "rejected guess", "hit"),
    seen_by=("symbolic", "state", "bitwise"),
)
def rejected_tokens_published(
    self: RequestQueues, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None
) -> None:
    """Publishes one step later what this step wrote, as if all of it had stayed."""
    _advance(self, rows, nums_rejected)
    for row, num_rejected in zip(rows, nums_rejected or [0] * len(rows), strict=True):
        state = row.state
        if num_rejected and self.blocks is not None and len(held_blocks(state).table.block_ids):
            num_computed = state.num_computed_tokens
            num_held = len(held_blocks(state).table.block_ids) * self.blocks.block_size
            state.num_computed_tokens = min(num_computed + num_rejected, state.num_tokens, num_held)
            self.blocks.publish(state)
            state.num_computed_tokens = num_computed


@one_replacement(
    "look_ahead_blocks_lost",
    Area.SPECULATIVE,
    "blocks that only rejected tokens need are taken out of the table and never given back",
    BlockSpace,
    "give_back_look_ahead",
    models=None,
    component=("scheduler/block_space.py",),
    needs=("speculation", "rejected guess"),
    seen_by=("state", "lifecycle"),
)
def look_ahead_blocks_lost(self: BlockSpace, state: RequestState) -> None:
    """Cuts the table, and nothing else."""
    held_blocks(state).table.cut(-(-state.num_tokens // self.block_size))


@one_replacement(
    "look_ahead_blocks_kept",
    Area.SPECULATIVE,
    "blocks that only rejected tokens need stay reserved",
    BlockSpace,
    "give_back_look_ahead",
    models=None,
    component=("scheduler/block_space.py", "scheduler/queues.py"),
    needs=("speculation", "rejected guess"),
    seen_by=("state",),
)
def look_ahead_blocks_kept(self: BlockSpace, state: RequestState) -> None:
    """Keeps them for later."""


@one_replacement(
    "guess_survives_preemption",
    Area.SPECULATIVE,
    "what was guessed for a request is kept when the step that was to verify it preempts the request",
    RequestQueues,
    "preempt",
    models=("vllm-project/vllm#28558 (8.01)",),
    component=("scheduler/queues.py",),
    needs=("speculation", "preemption"),
    seen_by=("symbolic", "state", "greedy"),
)
def guess_survives_preemption(self: RequestQueues, state: RequestState, *, by_swap: bool) -> str:
    """Takes the blocks back and leaves the guess."""
    draft_token_ids = state.draft_token_ids
    how = _preempt(self, state, by_swap=by_swap)
    state.draft_token_ids = draft_token_ids
    return how


FAULTS = (
    rejected_tokens_count_as_computed,
    rejected_tokens_published,
    look_ahead_blocks_lost,
    look_ahead_blocks_kept,
    guess_survives_preemption,
)

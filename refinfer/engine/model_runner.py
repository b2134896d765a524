"""Runs one step of the model: rows in, the logits that they want out, one runner for each cache.

A runner never decides how far a request has come: that is `num_computed_tokens`, which moves only after a step has
succeeded. What a cache holds past it is scratch, and is written over when the step is run again.
"""

from collections.abc import Sequence
from typing import Protocol, assert_never, runtime_checkable

from refinfer.cache import CausalAttentionView, ContinuousCache, HostBlocks, PagedCache, PagedPart, StaticCache
from refinfer.model import Llama
from refinfer.model.model_input import ModelInput, RowLogits
from refinfer.model.packed import PackedAttentionView
from refinfer.scheduler import (
    BlockOperation,
    CopyBlock,
    DropSwapped,
    ForgetBlocks,
    RequestState,
    RequestStatus,
    ScheduledRow,
    SwapIn,
    SwapOut,
)
from refinfer.scheduler.request import held_blocks


@runtime_checkable
class ModelRunner(Protocol):
    """Executes steps that a scheduler decided."""

    @property
    def num_reserved_slots(self) -> int:
        """Token places that are reserved now, but for those in blocks: who has blocks counts them."""
        ...

    def prepare(self, operations: Sequence[BlockOperation]) -> None:
        """Does to the cache what was decided, in order.

        An operation that raises must have changed nothing, since it is tried again.
        """
        ...

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs the next tokens of each row; gives the logits that each row wants.

        The rows' `num_computed_tokens` are the caller's to advance, once the step has succeeded.
        """
        ...

    def reset(self) -> None:
        """Drop what is kept of every request, in whatever state a call that stopped anywhere has left it."""
        ...


class _BlocklessRunner:
    """What the runners without blocks share: there is nothing to prepare.

    Args:
        model: The model.
        max_model_len: Longest request in tokens, prompt and output together.
    """

    def __init__(self, model: Llama, max_model_len: int) -> None:
        self._model = model
        self._max_model_len = max_model_len

    def prepare(self, operations: Sequence[BlockOperation]) -> None:
        """Does nothing: without blocks no operation on them is decided."""


class RecomputeRunner(_BlocklessRunner):
    """Keeps nothing: each step runs every row from its first token."""

    def reset(self) -> None:
        """Do nothing: nothing is kept."""

    @property
    def num_reserved_slots(self) -> int:
        """None: nothing is kept."""
        return 0

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs all tokens of every row."""
        token_ids = [row.state.token_ids for row in rows]
        model_input = ModelInput.pack(token_ids, [0] * len(rows), [row.num_logits for row in rows])
        return model_input.run(self._model, CausalAttentionView(model_input.num_tokens))


class StaticRunner(_BlocklessRunner):
    """Keeps one rectangle for the batch, made anew when the batch is."""

    def __init__(self, model: Llama, max_model_len: int) -> None:
        super().__init__(model, max_model_len)
        self.reset()

    def reset(self) -> None:
        """Drop the rectangle."""
        self._members: list[RequestState] = []
        self._cache: StaticCache | None = None

    @property
    def num_reserved_slots(self) -> int:
        """Columns of the rectangle, in all rows."""
        return 0 if self._cache is None else self._cache.batch_size * self._cache.max_columns

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs the prompts of a new batch, or the newest token of every row of the same one."""
        cache = self._current_cache([row.state for row in rows])
        is_decoding = cache.num_columns > 0
        token_ids = [row.state.token_ids[-1:] if is_decoding else row.state.token_ids for row in rows]
        first_positions = cache.num_computed_tokens if is_decoding else [0] * len(rows)
        model_input = ModelInput.pack(token_ids, first_positions, [row.num_logits for row in rows])
        return model_input.run(self._model, cache.attention_view())

    def _current_cache(self, states: list[RequestState]) -> StaticCache:
        """Gives the batch's cache, advanced to where its requests stand."""
        if self._cache is None or self._members != states:
            self._members = states
            self._cache = self._new_cache(states)
        for state, num_in_cache in zip(states, self._cache.num_computed_tokens, strict=True):
            if not state.is_finished and state.num_computed_tokens > num_in_cache:
                self._cache.advance()
                break
        return self._cache

    def _new_cache(self, states: Sequence[RequestState]) -> StaticCache:
        return StaticCache(
            self._model.config,
            self._model.dtype,
            num_prompt_tokens=[state.num_tokens for state in states],
            max_output_tokens=max(self._num_output_tokens_left(state) for state in states),
        )

    def _num_output_tokens_left(self, state: RequestState) -> int:
        room = self._max_model_len - state.num_tokens
        max_tokens = state.request.params.max_tokens
        return room if max_tokens is None else min(room, max_tokens)


class ContinuousRunner(_BlocklessRunner):
    """Keeps one growing cache for each request that runs, and drops it when the request has ended or lost its place."""

    def __init__(self, model: Llama, max_model_len: int) -> None:
        super().__init__(model, max_model_len)
        self.reset()

    def reset(self) -> None:
        """Drop every cache."""
        self._cache_by_request: dict[RequestState, ContinuousCache] = {}

    @property
    def num_reserved_slots(self) -> int:
        """Token places of all caches."""
        return sum(cache.capacity for cache in self._cache_by_request.values())

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs the next tokens of each row, prompts and newest tokens in one pass."""
        views = [self._current_cache(row.state).attention_view(row.num_scheduled_tokens) for row in rows]
        self._cache_by_request = {
            state: cache for state, cache in self._cache_by_request.items() if state.status is RequestStatus.RUNNING
        }
        model_input = _packed(rows)
        return model_input.run(self._model, PackedAttentionView(views, model_input.num_tokens))

    def _current_cache(self, state: RequestState) -> ContinuousCache:
        """Gives a request's cache, advanced to where the request stands; one that was preempted begins anew."""
        cache = self._cache_by_request.get(state)
        if cache is None or state.num_computed_tokens < cache.num_computed_tokens:
            cache = self._cache_by_request[state] = self._new_cache()
        if state.num_computed_tokens > cache.num_computed_tokens:
            cache.advance(state.num_computed_tokens - cache.num_computed_tokens)
        return cache

    def _new_cache(self) -> ContinuousCache:
        return ContinuousCache(self._model.config, self._model.dtype, max_tokens=self._max_model_len)


class PagedRunner:
    """Keeps keys and values of all requests in blocks.

    Args:
        model: The model.
        cache: The blocks.
        reader: How they are read, "gather" or "blocks".
    """

    def __init__(self, model: Llama, cache: PagedCache, reader: str) -> None:
        self._model = model
        self._cache = cache
        self._reader = reader
        self._host_blocks_by_request: dict[RequestState, HostBlocks] = {}

    def reset(self) -> None:
        """Forget what lies in every block and in host memory."""
        self._host_blocks_by_request = {}
        self._cache.forget(range(self._cache.num_blocks))

    @property
    def num_reserved_slots(self) -> int:
        """None: the scheduler counts its blocks."""
        return 0

    @property
    def num_swapped_requests(self) -> int:
        """Requests whose keys and values lie in host memory."""
        return len(self._host_blocks_by_request)

    def prepare(self, operations: Sequence[BlockOperation]) -> None:
        """Copies, swaps and forgets blocks, in the order decided: a block may be freed right after it was copied."""
        for operation in operations:
            match operation:
                case SwapOut(state, block_ids):
                    self._host_blocks_by_request[state] = self._cache.swap_out(block_ids)
                case SwapIn(state, block_ids):
                    self._cache.swap_in(self._host_blocks_by_request[state], block_ids)
                    del self._host_blocks_by_request[state]
                case DropSwapped(state):
                    del self._host_blocks_by_request[state]
                case CopyBlock(source, target):
                    self._cache.copy_blocks([(source, target)])
                case ForgetBlocks(block_ids):
                    self._cache.forget(block_ids)
                case _:
                    assert_never(operation)

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs the next tokens of each row, prompts and newest tokens in one pass."""
        parts = [
            PagedPart(
                tuple(held_blocks(row.state).table.block_ids), row.state.num_computed_tokens, row.num_scheduled_tokens
            )
            for row in rows
        ]
        return _packed(rows).run(self._model, self._cache.view(parts, self._reader))


def _packed(rows: Sequence[ScheduledRow]) -> ModelInput:
    """Packs the tokens that each row has scheduled."""
    starts = [row.state.num_computed_tokens for row in rows]
    return ModelInput.pack([row.token_ids for row in rows], starts, [row.num_logits for row in rows])

"""Faults of preemption: what a request keeps when its blocks are taken back, and what it gets again."""

from oracle.faults.registry import Area, one_replacement
from refinfer.scheduler import BlockSpace, DropSwapped, RequestQueues, RequestState, SwapIn, SwapOut
from refinfer.scheduler.request import held_blocks

_preempt_blocks = BlockSpace.preempt
_preempt = RequestQueues.preempt
_swap_in = BlockSpace._swap_in  # noqa: SLF001
_close = BlockSpace.close


@one_replacement(
    "length_kept_after_recompute",
    Area.PREEMPTION,
    "a preempted request keeps its count of computed tokens although its blocks are gone",
    BlockSpace,
    "preempt",
    models=("tenstorrent/vllm#326 (8.03)",),
    component=("scheduler/block_space.py",),
    needs=("preemption",),
    seen_by=("symbolic", "state", "bitwise", "poison", "lifecycle"),
)
def length_kept_after_recompute(self: BlockSpace, state: RequestState, *, by_swap: bool) -> bool:
    """Puts the count back, up to what a later admission could hold."""
    num_computed_tokens = state.num_computed_tokens
    is_swapped = _preempt_blocks(self, state, by_swap=by_swap)
    if not is_swapped:
        state.num_computed_tokens = num_computed_tokens
    return is_swapped


@one_replacement(
    "outputs_lost_on_preemption",
    Area.PREEMPTION,
    "a preempted request starts again from its prompt and forgets what it emitted",
    RequestQueues,
    "preempt",
    models=("vllm-project/vllm-gaudi#524 (8.02)",),
    component=("scheduler/queues.py",),
    needs=("preemption",),
    seen_by=("symbolic", "greedy", "seeded", "contract"),
)
def outputs_lost_on_preemption(self: RequestQueues, state: RequestState, *, by_swap: bool) -> str:
    """Cuts the tokens back to the prompt."""
    how = _preempt(self, state, by_swap=by_swap)
    if how == "recompute":
        del state.token_ids[state.num_prompt_tokens :]
    return how


@one_replacement(
    "newest_output_lost_on_preemption",
    Area.PREEMPTION,
    "a request that is preempted loses the token that it emitted last",
    RequestQueues,
    "preempt",
    models=("GeeeekExplorer/nano-vllm#217 (8.10)", "vllm-project/vllm-gaudi#1794 (8.06)"),
    component=("scheduler/queues.py",),
    needs=("preemption",),
    seen_by=("symbolic", "greedy", "seeded", "contract"),
)
def newest_output_lost_on_preemption(self: RequestQueues, state: RequestState, *, by_swap: bool) -> str:
    """Emits it again, as another token of the answer."""
    how = _preempt(self, state, by_swap=by_swap)
    if how == "recompute" and state.num_output_tokens:
        state.token_ids.pop()
    return how


@one_replacement(
    "preempted_to_the_end_of_the_queue",
    Area.PREEMPTION,
    "a preempted request waits behind those that never ran",
    RequestQueues,
    "preempt",
    models=("vllm-project/vllm#41951 (8.14)",),
    component=("scheduler/queues.py",),
    needs=("preemption", "batch"),
    seen_by=("state",),
)
def preempted_to_the_end_of_the_queue(self: RequestQueues, state: RequestState, *, by_swap: bool) -> str:
    """Sends it to the other end."""
    how = _preempt(self, state, by_swap=by_swap)
    self.waiting.rotate(-1)
    return how


@one_replacement(
    "swapped_back_in_other_order",
    Area.PREEMPTION,
    "blocks come back from host memory in another order than the table has them",
    BlockSpace,
    "_swap_in",
    models=None,
    component=("scheduler/block_space.py",),
    needs=("swap",),
    seen_by=("symbolic", "bitwise", "greedy"),
)
def swapped_back_in_other_order(self: BlockSpace, state: RequestState, held: object) -> bool:
    """Turns the target blocks around."""
    is_admitted = _swap_in(self, state, held)  # type: ignore[arg-type]  # what admit passes
    if is_admitted:
        operation = self._operations.pop()
        if isinstance(operation, SwapIn):
            self._operations.append(SwapIn(state, operation.block_ids[::-1]))
    return is_admitted


@one_replacement(
    "newest_block_not_swapped",
    Area.PREEMPTION,
    "the block that is only in part full is not swapped out, and comes back as another one's",
    BlockSpace,
    "preempt",
    models=None,
    component=("scheduler/block_space.py",),
    needs=("swap",),
    seen_by=("symbolic", "bitwise", "greedy"),
)
def newest_block_not_swapped(self: BlockSpace, state: RequestState, *, by_swap: bool) -> bool:
    """Swaps the first block once more in place of the last."""
    first = held_blocks(state).table.block_ids[:1]
    is_swapped = _preempt_blocks(self, state, by_swap=by_swap)
    for index, operation in enumerate(self._operations):
        if isinstance(operation, SwapOut) and operation.state is state and len(operation.block_ids) > 1:
            self._operations[index] = SwapOut(state, (*operation.block_ids[:-1], *first))
    return is_swapped


@one_replacement(
    "swapped_counts_as_computed_once_more",
    Area.PREEMPTION,
    "a request that comes back from host memory skips the token that it had yet to run",
    BlockSpace,
    "_swap_in",
    models=("vllm-project/vllm#10685 (8.08)",),
    component=("scheduler/block_space.py",),
    needs=("swap", "chunks"),
    seen_by=("symbolic", "bitwise", "poison"),
)
def swapped_counts_as_computed_once_more(self: BlockSpace, state: RequestState, held: object) -> bool:
    """Counts one token more, where more than one is left."""
    is_admitted = _swap_in(self, state, held)  # type: ignore[arg-type]  # what admit passes
    if is_admitted and state.num_computed_tokens + 1 < state.num_tokens:
        state.num_computed_tokens += 1
    return is_admitted


@one_replacement(
    "host_memory_never_given_back",
    Area.PREEMPTION,
    "blocks in host memory go on counting after their request has come back",
    BlockSpace,
    "_swap_in",
    models=("vllm-project/vllm#5578 (8.09)",),
    component=("scheduler/block_space.py",),
    needs=("swap",),
    seen_by=("state", "lifecycle"),
)
def host_memory_never_given_back(self: BlockSpace, state: RequestState, held: object) -> bool:
    """Counts them for ever."""
    num_swapped_blocks = self.num_swapped_blocks
    is_admitted = _swap_in(self, state, held)  # type: ignore[arg-type]  # what admit passes
    self.num_swapped_blocks = num_swapped_blocks
    return is_admitted


@one_replacement(
    "abort_leaves_host_memory",
    Area.ABORT,
    "a request that is aborted while swapped out leaves its keys and values in host memory",
    BlockSpace,
    "close",
    models=("openvinotoolkit/model_server#4428 (13.07)",),
    component=("scheduler/block_space.py",),
    needs=("abort", "swap"),
    seen_by=("lifecycle",),
)
def abort_leaves_host_memory(self: BlockSpace, state: RequestState) -> None:
    """Says nothing of it to the cache."""
    _close(self, state)
    self._operations[:] = [operation for operation in self._operations if not isinstance(operation, DropSwapped)]


@one_replacement(
    "abort_leaves_blocks",
    Area.ABORT,
    "a request that is aborted between two chunks keeps its blocks",
    BlockSpace,
    "close",
    models=("vllm-project/vllm#19223 (13.04)",),
    component=("scheduler/block_space.py",),
    needs=("abort", "chunks"),
    seen_by=("state", "lifecycle"),
)
def abort_leaves_blocks(self: BlockSpace, state: RequestState) -> None:
    """Gives back only what has emitted something."""
    if state.num_output_tokens or held_blocks(state).num_swapped_blocks:
        _close(self, state)


FAULTS = (
    length_kept_after_recompute,
    outputs_lost_on_preemption,
    newest_output_lost_on_preemption,
    preempted_to_the_end_of_the_queue,
    swapped_back_in_other_order,
    newest_block_not_swapped,
    swapped_counts_as_computed_once_more,
    host_memory_never_given_back,
    abort_leaves_host_memory,
    abort_leaves_blocks,
)
"""Faults of preemption, swapping and aborting."""

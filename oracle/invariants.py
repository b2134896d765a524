"""What must hold of an engine's requests and blocks after every step, and of every step before it runs?"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NoReturn

from oracle.errors import InvariantViolation
from refinfer.cache.block_table import BlockTable
from refinfer.engine.core import EngineCore
from refinfer.errors import InvariantError
from refinfer.scheduler import BlockSpace, RequestQueues, RequestState, RequestStatus, ScheduledRow, SchedulerOutput
from refinfer.scheduler.request import held_blocks

_WAITING_STATUSES = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


def check_core(core: EngineCore, *, max_num_seqs: int | None = None) -> None:
    """Checks everything that an engine knows of its requests, between two steps.

    Args:
        core: The engine's core.
        max_num_seqs: Most requests that may run; None does not ask.

    Raises:
        InvariantViolation: Something does not hold; the message says what, and of which request.
    """
    check_queues(core.scheduler, max_num_seqs=max_num_seqs)
    known = [state for state in core.scheduler.running if not state.is_finished] + list(core.scheduler.waiting)
    if known != list(core.answers):
        _violate(
            f"requests run and wait in the order {_names(known)}, and arrived in the order {_names(list(core.answers))}"
        )


def check_queues(queues: RequestQueues, *, max_num_seqs: int | None = None) -> None:
    """Checks who runs and who waits, and the blocks that they hold.

    Args:
        queues: The scheduler.
        max_num_seqs: Most requests that may run; None does not ask.

    Raises:
        InvariantViolation: Something does not hold.
    """
    running, waiting = queues.running, list(queues.waiting)
    if len(set(running) | set(waiting)) < len(running) + len(waiting):
        _violate(f"a request stands in the queues twice: running {_names(running)}, waiting {_names(waiting)}")
    if max_num_seqs is not None and len(running) > max_num_seqs:
        _violate(f"{len(running)} requests run, where {max_num_seqs} may")
    for state in running:
        _check_running(state)
    for state in waiting:
        _check_waiting(state)
    statuses = [state.status for state in waiting]
    if sorted(statuses, key=lambda status: status is RequestStatus.WAITING) != statuses:
        _violate(f"a request that never ran waits before one that was preempted: {_names(waiting)}")
    if queues.blocks is not None:
        check_blocks(queues.blocks, [state for state in running if not state.is_finished], waiting)


def check_blocks(space: BlockSpace, running: Sequence[RequestState], waiting: Sequence[RequestState]) -> None:
    """Checks that references, tables and pins add up, and that nobody holds what he may not hold.

    Args:
        space: The blocks.
        running: Every request that runs.
        waiting: Every request that waits.

    Raises:
        InvariantViolation: Something does not hold.
    """
    try:
        space.pool.check_integrity()
        if space.prefix is not None:
            space.prefix.check_integrity()
    except InvariantError as error:
        _violate(str(error))
    places: dict[int, list[tuple[RequestState, int]]] = defaultdict(list)
    for state in [*running, *waiting]:
        for index, block_id in enumerate(held_blocks(state).table.block_ids):
            places[block_id].append((state, index))
    for block_id in range(space.pool.num_blocks):
        expected = len(places[block_id]) + space.pool.is_pinned(block_id)
        if space.pool.ref_count(block_id) != expected:
            _violate(
                f"block {block_id} has {space.pool.ref_count(block_id)} references; "
                f"tables and pins hold it {expected} times"
            )
        _check_sharing(block_id, places[block_id], space.block_size)
    for state in running:
        _check_table(state, space.block_size)
    _check_swapped(space, [*running, *waiting])


def check_output(
    output: SchedulerOutput,
    queues: RequestQueues,
    max_num_seqs: int,
    token_budget: int | None,
    max_model_len: int | None = None,
) -> None:
    """Checks a step that was decided and has not run.

    Args:
        output: What was decided.
        queues: The scheduler that decided it.
        max_num_seqs: Most requests in one step.
        token_budget: Most tokens in one step; None sets no limit.
        max_model_len: Longest request in tokens, prompt and output together; None sets no limit.

    Raises:
        InvariantViolation: Something does not hold.
    """
    states = [row.state for row in output.rows]
    if len(set(states)) < len(states) or len(states) > max_num_seqs:
        _violate(f"requests {_names(states)} run in one step, where {max_num_seqs} may, each once")
    if token_budget is not None and output.num_scheduled_tokens > token_budget:
        _violate(f"{output.num_scheduled_tokens} tokens run in one step, where {token_budget} may")
    for row in output.rows:
        state, end = row.state, row.state.num_computed_tokens + row.num_scheduled_tokens
        if state not in queues.running:
            _violate(f"{_name(state)} is to run, and is {state.status}")
        _check_range(row, end)
        _check_guesses(row, max_model_len)
        if row.emits != (end >= state.num_tokens and not state.is_finished):
            _violate(f"{_name(state)} runs up to token {end} of {state.num_tokens}, and emits: {row.emits}")
        if queues.blocks is not None:
            _check_written(state, end, queues.blocks)


def check_drained(core: EngineCore) -> None:
    """Checks that nothing is left of any request, once all have ended.

    Raises:
        InvariantViolation: Something is.
    """
    check_core(core)
    space = core.scheduler.blocks
    if core.has_unfinished_requests() or core.scheduler.waiting or core.answers:
        _violate(f"all requests should have ended, and {_names(list(core.answers))} have not")
    if space is not None and space.num_available_blocks != space.pool.num_blocks:
        _violate(f"{space.num_available_blocks} of {space.pool.num_blocks} blocks can be had, and nobody is left")
    num_swapped = getattr(core.runner, "num_swapped_requests", 0)
    if num_swapped:
        _violate(f"{num_swapped} requests have blocks in host memory, and nobody is left")


def _check_running(state: RequestState) -> None:
    if state.status not in (RequestStatus.RUNNING, RequestStatus.FINISHED):
        _violate(f"{_name(state)} is among those that run and is {state.status}")
    if not state.is_finished and state.num_computed_tokens >= state.num_tokens:
        _violate(f"{_name(state)} has {state.num_computed_tokens} of {state.num_tokens} tokens computed: none runs")


def _check_waiting(state: RequestState) -> None:
    if state.status not in _WAITING_STATUSES:
        _violate(f"{_name(state)} is among those that wait and is {state.status}")
    if state.num_computed_tokens >= state.num_tokens:
        _violate(f"{_name(state)} has {state.num_computed_tokens} of {state.num_tokens} tokens computed: none runs")
    is_swapped = state.blocks is not None and state.blocks.num_swapped_blocks > 0
    if state.num_computed_tokens and not is_swapped:
        _violate(f"{_name(state)} waits with {state.num_computed_tokens} computed tokens that are nowhere")
    if state.blocks is not None and state.blocks.table.block_ids:
        _violate(f"{_name(state)} waits and holds blocks {state.blocks.table.block_ids}")


def _check_table(state: RequestState, block_size: int) -> None:
    num_blocks = len(held_blocks(state).table.block_ids)
    least = BlockTable.blocks_for(state.num_computed_tokens, block_size)
    # What is guessed still has its blocks where the step that should have verified it failed.
    most = BlockTable.blocks_for(state.num_tokens + len(state.draft_token_ids), block_size)
    if not least <= num_blocks <= most:
        _violate(
            f"{_name(state)} holds {num_blocks} blocks; what is computed needs {least}, what is known or guessed {most}"
        )


def _check_swapped(space: BlockSpace, states: Sequence[RequestState]) -> None:
    num_blocks = sum(held_blocks(state).num_swapped_blocks for state in states)
    if not num_blocks == space.num_swapped_blocks <= space.num_swap_blocks:
        _violate(
            f"{num_blocks} blocks are swapped out and {space.num_swapped_blocks} are counted, "
            f"of {space.num_swap_blocks} in host memory"
        )
    for state in states:
        num_swapped = held_blocks(state).num_swapped_blocks
        expected = BlockTable.blocks_for(state.num_computed_tokens, space.block_size)
        if num_swapped and (state.status is not RequestStatus.PREEMPTED or num_swapped != expected):
            _violate(f"{_name(state)} is {state.status} and has {num_swapped} blocks swapped out, needing {expected}")


def _check_sharing(block_id: int, places: Sequence[tuple[RequestState, int]], block_size: int) -> None:
    """A block in several tables stands in one place of all, and holds tokens that all have computed, the same ones."""
    if not places:
        return
    (first, index), *others = places
    for state, other_index in others:
        num_common = min(first.num_computed_tokens, state.num_computed_tokens, (index + 1) * block_size)
        if other_index != index or num_common <= index * block_size:
            _violate(f"block {block_id} is shared by {_name(first)} and {_name(state)}, and is not computed for both")
        if first.token_ids[:num_common] != state.token_ids[:num_common]:
            _violate(f"block {block_id} is shared by {_name(first)} and {_name(state)}, whose tokens differ")


def _check_range(row: ScheduledRow, end: int) -> None:
    state, drafted = row.state, row.draft_token_ids
    if row.num_scheduled_tokens < 1 or end > state.num_tokens + len(drafted):
        _violate(f"{_name(state)} is to run {row.num_scheduled_tokens} tokens up to {end} of {state.num_tokens}")
    if not drafted:
        return
    if drafted != state.draft_token_ids[: len(drafted)] or end < state.num_tokens + len(drafted):
        _violate(
            f"{_name(state)} is to verify {drafted} up to token {end} of {state.num_tokens} and what is guessed, "
            f"{state.draft_token_ids}"
        )


def _check_guesses(row: ScheduledRow, max_model_len: int | None) -> None:
    """The pass emits one token more than it verifies, so that a guess may not even reach the last one."""
    state, num_guessed = row.state, len(row.draft_token_ids)
    limits = {"max_model_len": max_model_len, "max_tokens": state.request.params.max_tokens}
    ends = {"max_model_len": state.num_tokens + num_guessed, "max_tokens": state.num_output_tokens + num_guessed}
    for name, limit in limits.items():
        if num_guessed and limit is not None and ends[name] >= limit:
            _violate(f"{_name(state)} is to verify {num_guessed} guessed tokens up to {ends[name]}; {name} is {limit}")


def _check_written(state: RequestState, end: int, space: BlockSpace) -> None:
    block_ids = held_blocks(state).table.block_ids
    needed = BlockTable.blocks_for(end, space.block_size)
    if len(block_ids) < needed:
        _violate(f"{_name(state)} holds {len(block_ids)} blocks and needs {needed} to run up to token {end}")
    for block_id in block_ids[state.num_computed_tokens // space.block_size :]:
        if space.pool.ref_count(block_id) != 1:
            _violate(f"{_name(state)} would write to block {block_id}, which others hold too")


def _name(state: RequestState) -> str:
    return f"request {state.request.request_id}, sample {state.sample_index},"


def _names(states: Sequence[RequestState]) -> list[str]:
    return [f"{state.request.request_id}/{state.sample_index}" for state in states]


def _violate(message: str) -> NoReturn:
    raise InvariantViolation(message)

"""The moves between those that wait and those that run, whatever policy decides them."""

import pytest

from refinfer.errors import InvariantError
from refinfer.sampling import FinishReason
from refinfer.scheduler import BlockSpace, DropSwapped, RequestQueues, RequestStatus, ScheduledRow, SchedulerOutput


class NobodyRuns(RequestQueues):
    """Decides nothing: the tests move requests by hand."""

    def schedule(self):
        return SchedulerOutput(())


@pytest.fixture
def queues():
    return NobodyRuns(BlockSpace(4, 2, num_swap_blocks=4))


def run_all(queues, state):
    """Runs every known token of a request."""
    row = ScheduledRow.of(state, state.num_tokens - state.num_computed_tokens)
    assert queues.try_reserve(state, row.num_scheduled_tokens)
    queues.advance([row])
    state.append(0)


def test_request_is_admitted_in_the_order_of_arrival_while_there_is_room(queues, make_state):
    first, second, third = states = [make_state(name, (index, 1, 2)) for index, name in enumerate("abc")]
    for state in states:
        queues.add(state)
    for state in (first, second):
        assert queues.admit()
        run_all(queues, state)
    assert not queues.admit(), "four blocks hold two requests of three tokens"
    assert (queues.running, list(queues.waiting)) == ([first, second], [third])
    assert (third.status, third.blocks.table.block_ids) == (RequestStatus.WAITING, [])


def test_preempted_requests_wait_before_those_that_never_ran(queues, make_state):
    first, second, third = states = [make_state(name, (index,)) for index, name in enumerate("abc")]
    for state in states:
        queues.add(state)
    for state in (first, second):
        queues.admit()
        run_all(queues, state)
    for state in (second, first):
        queues.preempt(state, by_swap=False)
    assert list(queues.waiting) == [first, second, third]
    assert (first.status, first.num_preemptions, first.num_computed_tokens) == (RequestStatus.PREEMPTED, 1, 0)


def test_advance_makes_tokens_computed_and_leaves_ended_rows_alone(queues, make_state):
    state = make_state("a", (1, 2, 3))
    queues.add(state)
    queues.admit()
    assert queues.try_reserve(state, 2)
    row = ScheduledRow.of(state, 2)
    queues.advance([row])
    assert state.num_computed_tokens == 2
    queues.finish(state, FinishReason.ABORT)
    queues.advance([row])
    assert state.num_computed_tokens == 2


@pytest.mark.parametrize("is_swapped", [True, False])
@pytest.mark.parametrize("moves", ["waiting", "running", "preempted"])
def test_request_that_ends_leaves_nothing_wherever_it_is(queues, make_state, moves, is_swapped):
    state = make_state("a", (1, 2, 3))
    queues.add(state)
    if moves != "waiting":
        queues.admit()
        run_all(queues, state)
    if moves == "preempted":
        assert queues.preempt(state, by_swap=is_swapped) == ("swap" if is_swapped else "recompute")
    queues.take_operations()
    queues.finish(state, FinishReason.ABORT)
    assert not queues.has_unfinished_requests()
    assert queues.blocks.num_available_blocks == 4
    dropped = [operation for operation in queues.take_operations() if isinstance(operation, DropSwapped)]
    assert dropped == ([DropSwapped(state)] if moves == "preempted" and is_swapped else [])


def test_queues_refuse_to_end_a_request_that_they_never_saw(queues, make_state):
    with pytest.raises(InvariantError, match="request a is in no queue"):
        queues.finish(make_state("a"), FinishReason.ABORT)


def test_queues_without_blocks_let_everybody_in_and_do_nothing_to_a_cache(make_state):
    queues = NobodyRuns()
    state = make_state("a", range(100))
    queues.add(state)
    assert queues.admit()
    assert queues.try_reserve(state, 100)
    queues.advance([ScheduledRow.of(state, 40)])
    assert queues.preempt(state, by_swap=True) == "recompute"
    assert (state.num_computed_tokens, queues.take_operations()) == (0, ())

"""The moves between those that wait and those that run, whatever policy decides them."""

import pytest

from oracle.invariants import check_queues
from refinfer.errors import InvariantError
from refinfer.sampling import FinishReason
from refinfer.scheduler import (
    BlockSpace,
    DropSwapped,
    ForgetBlocks,
    RequestQueues,
    RequestStatus,
    ScheduledRow,
    SchedulerOutput,
)


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
    queues.admit()
    queues.preempt(first, by_swap=False)
    assert first.num_preemptions == 2


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


def test_advance_reaches_the_rows_behind_one_that_has_ended(make_state):
    """Which keeps its place in a static batch."""
    queues = NobodyRuns()
    ended, other = make_state("a", (1, 2)), make_state("b", (1, 2))
    for state in (ended, other):
        queues.add(state)
        queues.admit()
    rows = [ScheduledRow.of(state, 2) for state in (ended, other)]
    queues.finish(ended, FinishReason.STOP)
    queues.advance(rows)
    assert (ended.num_computed_tokens, other.num_computed_tokens) == (0, 2)


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
    assert (queues.blocks.num_swapped_blocks, state.blocks.num_swapped_blocks) == (0, 0)
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


@pytest.fixture
def guessed(queues, make_state):
    """A request of three known tokens, two of which have run, with four guessed ones."""
    state = make_state("a", (1, 2))
    queues.add(state)
    queues.admit()
    run_all(queues, state)
    queues.propose(state, (5, 6, 7, 8))
    assert queues.try_reserve(state, 1)
    queues.take_operations()
    return state


@pytest.mark.parametrize(("most", "num_found"), [(0, 0), (1, 1), (3, 3), (4, 4), (9, 4)])
def test_look_ahead_finds_room_for_no_more_than_is_guessed_or_allowed(queues, guessed, most, num_found):
    assert queues.look_ahead(guessed, 1, most) == num_found
    assert guessed.blocks.table.num_slots >= 3 + num_found
    assert guessed.num_computed_tokens == 2


@pytest.mark.parametrize(("num_held", "num_found"), [(0, 4), (1, 3), (2, 1)])
def test_look_ahead_is_as_long_as_blocks_are_free(queues, guessed, make_state, num_held, num_found):
    """Of four blocks of two the request has two, and the second has one place left."""
    other = make_state("b", (9,) * (2 * num_held) or (9,))
    queues.add(other)
    if num_held:
        assert queues.admit()
        assert queues.try_reserve(other, 2 * num_held)
    assert queues.look_ahead(guessed, 1, 99) == num_found
    assert not queues.take_operations(), "nobody lost a block"
    assert other.blocks.table.num_slots == 2 * num_held


def test_look_ahead_stands_behind_all_known_tokens_only(queues, make_state):
    state = make_state("a", (1, 2, 3))
    queues.add(state)
    queues.admit()
    queues.propose(state, (5,))
    assert queues.try_reserve(state, 3)
    assert queues.look_ahead(state, 2, 9) == 0, "a known token is left"
    assert queues.look_ahead(state, 3, 9) == 1


@pytest.mark.parametrize(("num_accepted", "num_kept"), [(0, 2), (1, 3), (2, 3), (3, 3)])
def test_tokens_that_were_guessed_wrong_are_not_computed_and_their_blocks_come_back(
    queues, guessed, num_accepted, num_kept
):
    """The tokens that stay, and the one after them, are known by then; the next step writes over the rest."""
    assert queues.look_ahead(guessed, 1, 3) == 3
    row = ScheduledRow.of(guessed, 4)
    block_ids = list(guessed.blocks.table.block_ids)
    assert len(block_ids) == 3
    for token_id in (*row.draft_token_ids[:num_accepted], 0):
        guessed.append(token_id)
    queues.advance([row], [3 - num_accepted])
    assert guessed.num_computed_tokens == 3 + num_accepted == guessed.num_tokens - 1
    assert guessed.draft_token_ids == ()
    assert guessed.blocks.table.block_ids == block_ids[:num_kept]
    assert queues.take_operations() == ((ForgetBlocks(tuple(block_ids[num_kept:])),) if num_kept < 3 else ())


def test_guess_of_a_step_that_failed_gives_its_blocks_back_when_the_next_is_made(queues, guessed):
    assert queues.look_ahead(guessed, 1, 4) == 4
    block_ids = list(guessed.blocks.table.block_ids)
    queues.propose(guessed, (9,))
    assert guessed.draft_token_ids == (9,)
    assert guessed.blocks.table.block_ids == block_ids[:2]
    assert queues.take_operations() == (ForgetBlocks(tuple(block_ids[2:])),)


@pytest.mark.parametrize("by_swap", [True, False])
def test_preempted_request_loses_its_guess_and_all_its_blocks(queues, guessed, by_swap):
    queues.look_ahead(guessed, 1, 4)
    queues.preempt(guessed, by_swap=by_swap)
    assert guessed.draft_token_ids == ()
    assert queues.blocks.num_available_blocks == 4
    assert guessed.blocks.num_swapped_blocks == by_swap, "one block has what is computed"


def test_queues_without_blocks_look_ahead_as_far_as_is_guessed(make_state):
    queues = NobodyRuns()
    state = make_state("a", (1, 2))
    queues.add(state)
    queues.admit()
    queues.propose(state, (5, 6, 7))
    assert queues.look_ahead(state, 2, 2) == 2
    row = ScheduledRow.of(state, 4)
    for token_id in (5, 0):
        state.append(token_id)
    queues.advance([row], [1])
    assert (state.num_computed_tokens, state.draft_token_ids) == (3, ())


def test_reset_lets_requests_wait_with_their_tokens_and_nothing_else(queues, make_state):
    running, swapped, ended = states = [make_state(name, (index, 1, 2)) for index, name in enumerate("abc")]
    for state in states:
        queues.add(state)
    for state in (running, swapped):
        assert queues.admit()
        run_all(queues, state)
    queues.preempt(swapped, by_swap=True)
    queues.finish(ended, FinishReason.ABORT)
    queues.reset(states)
    assert (queues.running, list(queues.waiting)) == ([], states)
    assert {state.status for state in states} == {RequestStatus.WAITING}
    assert [(state.num_tokens, state.num_computed_tokens, state.finish_reason) for state in states] == [
        (4, 0, None),
        (4, 0, None),
        (3, 0, None),
    ]
    assert queues.take_operations() == ()
    check_queues(queues)
    assert queues.blocks.num_available_blocks == 4

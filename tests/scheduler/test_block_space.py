"""Blocks as handed out to requests: a life beside a store that knows what every slot must hold, and each move."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oracle.chain_runner import ChainRunner
from oracle.invariants import check_blocks
from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import (
    BlockSpace,
    CopyBlock,
    ForgetBlocks,
    Request,
    RequestState,
    RequestStatus,
    ScheduledRow,
    SwapIn,
    SwapOut,
)
from refinfer.scheduler.request import held_blocks

MAX_MODEL_LEN = 9


def picture(space, state):
    """What must not change when a request is turned down."""
    return (
        list(held_blocks(state).table.block_ids),
        state.num_computed_tokens,
        held_blocks(state).num_swapped_blocks,
        [space.pool.ref_count(block_id) for block_id in range(space.pool.num_blocks)],
        space.num_swapped_blocks,
    )


class BlockSpaceLife(RuleBasedStateMachine):
    """Requests are let in, grow, and lose their blocks in any order that the moves allow, not only in a policy's."""

    @initialize(
        block_size=st.integers(1, 4),
        num_spare_blocks=st.integers(0, 6),
        enable_prefix_caching=st.booleans(),
        num_swap_blocks=st.sampled_from([0, 2, 99]),
        shuffle_seed=st.none() | st.integers(0, 3),
    )
    def start(self, block_size, num_spare_blocks, **options):
        num_blocks = -(-MAX_MODEL_LEN // block_size) + num_spare_blocks
        self.space = BlockSpace(num_blocks, block_size, **options)
        self.store = ChainRunner(num_blocks, block_size)
        self.running: list[RequestState] = []
        self.waiting: list[RequestState] = []

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=MAX_MODEL_LEN - 1), n=st.integers(1, 2))
    def open(self, prompt, n):
        first = None
        for index in range(n):
            state = RequestState(
                Request("a", None, tuple(prompt), SamplingParams(n=n)), sample_index=index, first_sample=first
            )
            first = first or state
            self.space.open(state)
            self.waiting.append(state)

    @rule(choice=st.integers(0, 99))
    def admit(self, choice):
        if not self.waiting:
            return
        state = self.waiting[choice % len(self.waiting)]
        before = picture(self.space, state)
        if not self.space.admit(state):
            assert picture(self.space, state) == before, "whole or not at all"
            return
        assert state.num_computed_tokens < state.num_tokens, "the newest token always runs"
        self.waiting.remove(state)
        self.running.append(state)
        state.move_to(RequestStatus.RUNNING)
        # Who was let in has room for all tokens that are known
        assert self.space.try_reserve(state, state.num_tokens)
        self.run(state, state.num_tokens - state.num_computed_tokens, fails=False)

    @rule(choice=st.integers(0, 99), num_tokens=st.integers(1, 4), fails=st.booleans())
    def grow(self, choice, num_tokens, fails):
        if not self.running:
            return
        state = self.running[choice % len(self.running)]
        num_scheduled = min(num_tokens, state.num_tokens - state.num_computed_tokens)
        before = picture(self.space, state)
        if self.space.try_reserve(state, state.num_computed_tokens + num_scheduled):
            self.run(state, num_scheduled, fails=fails)
        else:
            assert picture(self.space, state) == before, "whole or not at all"

    def run(self, state, num_scheduled, *, fails):
        self.store.prepare(self.space.take_operations())
        self.store.execute([ScheduledRow.of(state, num_scheduled)])
        if fails:
            return
        state.num_computed_tokens += num_scheduled
        self.space.publish(state)
        if state.num_computed_tokens == state.num_tokens:
            if state.num_tokens == MAX_MODEL_LEN:
                self.leave(self.running, state)
            else:
                state.append(state.num_tokens % 2)

    @rule(choice=st.integers(0, 99), by_swap=st.booleans())
    def preempt(self, choice, by_swap):
        if self.running:
            state = self.running.pop(choice % len(self.running))
            state.move_to(RequestStatus.PREEMPTED)
            num_computed = state.num_computed_tokens
            is_swapped = self.space.preempt(state, by_swap=by_swap)
            assert state.num_computed_tokens == (num_computed if is_swapped else 0)
            self.waiting.append(state)

    @rule(choice=st.integers(0, 99))
    def close(self, choice):
        states = self.running + self.waiting
        if states:
            state = states[choice % len(states)]
            self.leave(self.running if state in self.running else self.waiting, state)

    def leave(self, states, state):
        states.remove(state)
        state.finish(FinishReason.ABORT)
        self.space.close(state)

    @invariant()
    def everything_adds_up(self):
        check_blocks(self.space, self.running, self.waiting)

    def teardown(self):
        """All leave; what is cached can be had back."""
        if not hasattr(self, "space"):
            return
        for states in (self.running, self.waiting):
            while states:
                self.leave(states, states[0])
        self.store.prepare(self.space.take_operations())
        assert self.store.num_swapped_requests == 0
        assert self.space.num_available_blocks == self.space.pool.num_blocks
        assert self.space.num_swapped_blocks == 0


BlockSpaceLife.TestCase.settings = settings(
    deadline=None, max_examples=settings().max_examples // 2, stateful_step_count=25
)
TestBlockSpaceLife = BlockSpaceLife.TestCase


@pytest.fixture
def run(make_state):
    """Lets a request in and runs all its tokens; gives its state."""

    def run_in(space, prompt, *, first_sample=None, num_tokens=None):
        state = make_state("a", prompt)
        state.first_sample = first_sample
        space.open(state)
        assert space.admit(state)
        state.move_to(RequestStatus.RUNNING)
        stop = num_tokens or state.num_tokens
        assert space.try_reserve(state, stop)
        state.num_computed_tokens = stop
        space.publish(state)
        return state

    return run_in


def test_request_shares_the_blocks_of_a_prefix_that_was_computed(run):
    space = BlockSpace(8, 2)
    first = run(space, (1, 2, 3, 4, 5))
    second = run(space, (1, 2, 3, 4, 6))
    assert held_blocks(second).table.block_ids[:2] == held_blocks(first).table.block_ids[:2]
    assert held_blocks(second).table.block_ids[2] != held_blocks(first).table.block_ids[2]
    assert (second.num_cached_tokens, space.num_hit_tokens, first.num_cached_tokens) == (4, 4, 0)
    third = run(space, (1, 2, 3, 7))
    assert (third.num_cached_tokens, space.num_hit_tokens) == (2, 6)


def test_request_with_another_salt_shares_nothing(run):
    space = BlockSpace(8, 2)
    first = run(space, (1, 2, 3))
    other = RequestState(Request("b", None, (1, 2, 3), SamplingParams(), cache_salt="mine"))
    space.open(other)
    space.admit(other)
    assert space.try_reserve(other, 3)
    assert not set(held_blocks(other).table.block_ids) & set(held_blocks(first).table.block_ids)


def test_newest_token_runs_even_when_every_block_is_known(run, make_state):
    space = BlockSpace(8, 2)
    first = run(space, (1, 2, 3, 4))
    space.take_operations()
    state = make_state("b", (1, 2, 3, 4))
    space.open(state)
    assert space.admit(state)
    assert state.num_computed_tokens == 3
    shared = held_blocks(first).table.block_ids[1]
    assert space.try_reserve(state, 4)
    target = held_blocks(state).table.block_ids[1]
    assert target != shared
    assert (space.take_operations(), space.num_copies) == ((CopyBlock(shared, target),), 1)


def test_request_gives_up_a_shared_block_for_whose_copy_there_is_no_room(run, make_state):
    """A pool that just holds the longest request must hold it after a hit as well."""
    space = BlockSpace(2, 2)
    first = run(space, (1, 2, 3, 4))
    space.close(first)
    state = make_state("b", (1, 2, 3, 4))
    space.open(state)
    assert space.admit(state)
    assert (state.num_computed_tokens, len(held_blocks(state).table.block_ids)) == (2, 1)
    assert space.try_reserve(state, 4)


def test_other_samples_wait_until_the_first_has_computed_the_prompt(run):
    space = BlockSpace(8, 2, enable_prefix_caching=False)
    first = run(space, (1, 2, 3, 4, 5), num_tokens=3)
    second = RequestState(first.request, sample_index=1, first_sample=first)
    space.open(second)
    assert not space.admit(second)
    assert space.try_reserve(first, 5)
    first.num_computed_tokens = 5
    assert space.admit(second)
    assert second.num_computed_tokens == 4
    assert held_blocks(second).table.block_ids == held_blocks(first).table.block_ids[:2]
    assert space.num_forks == 1


def second_sample(space, first):
    """Opens another sample of a request, and tells whether it is let in."""
    second = RequestState(first.request, sample_index=1, first_sample=first)
    space.open(second)
    return space.admit(second)


@pytest.mark.parametrize(("num_computed_tokens", "is_admitted"), [(3, False), (4, True)])
def test_other_samples_come_as_soon_as_all_but_the_last_token_is_computed(run, num_computed_tokens, is_admitted):
    space = BlockSpace(8, 2, enable_prefix_caching=False)
    first = run(space, (1, 2, 3, 4, 5), num_tokens=num_computed_tokens)
    assert second_sample(space, first) == is_admitted


@pytest.mark.parametrize(("prompt", "num_needed"), [((1, 2, 3, 4, 5), 1), ((1, 2, 3, 4), 1), ((1, 2, 3), 1)])
def test_other_samples_need_room_for_what_they_do_not_share(run, prompt, num_needed):
    """The block of the last token: a copy where the shared tokens end inside it, a new one where they fill the last."""
    num_own = -(-len(prompt) // 2)
    for num_free in (num_needed - 1, num_needed):
        space = BlockSpace(num_own + num_free, 2, enable_prefix_caching=False)
        assert second_sample(space, run(space, prompt)) == (num_free == num_needed)


def test_who_writes_first_to_a_shared_block_copies_it(run):
    space = BlockSpace(8, 4, enable_prefix_caching=False)
    first = run(space, (1, 2, 3))
    second = RequestState(first.request, sample_index=1, first_sample=first)
    space.open(second)
    assert space.admit(second)
    (shared,) = held_blocks(first).table.block_ids
    assert held_blocks(second).table.block_ids == [shared]
    first.append(7)
    assert space.try_reserve(first, 4)
    assert held_blocks(first).table.block_ids != [shared], "the other still reads it"
    assert space.try_reserve(second, 3)
    assert held_blocks(second).table.block_ids == [shared], "nobody else holds it any more"
    assert space.num_copies == 1
    second.move_to(RequestStatus.RUNNING)
    assert second_sample(space, second)
    assert space.num_forks == 2
    second.append(7)
    assert space.try_reserve(second, 4)
    assert space.num_copies == 2


def test_swapped_blocks_come_back_in_order_and_bit_by_bit(run):
    space = BlockSpace(4, 2, num_swap_blocks=2)
    state = run(space, (1, 2, 3))
    before = tuple(held_blocks(state).table.block_ids)
    state.move_to(RequestStatus.PREEMPTED)
    assert space.preempt(state, by_swap=True)
    assert space.take_operations()[0] == SwapOut(state, before)
    state.append(5)
    assert space.admit(state)
    assert space.take_operations()[-1] == SwapIn(state, tuple(held_blocks(state).table.block_ids))
    assert (state.num_computed_tokens, space.num_swapped_blocks) == (3, 0)


def test_blocks_are_forgotten_before_somebody_else_writes_to_them(run, make_state):
    space = BlockSpace(2, 2)
    first = run(space, (1, 2, 3))
    table = list(held_blocks(first).table.block_ids)
    space.close(first)
    assert space.take_operations() == (ForgetBlocks((table[1],)),), "the full block stays findable"
    other = make_state("b", (5, 6, 7))
    space.open(other)
    assert space.admit(other)
    assert space.try_reserve(other, 3)
    assert space.take_operations() == (ForgetBlocks((table[0],)),)
    assert space.num_evictions == 1
    other.num_computed_tokens = 3
    space.publish(other)
    space.close(other)
    run(space, (8, 9, 8))
    assert space.num_evictions == 2


def test_blocks_of_guessed_tokens_are_given_back_and_forgotten(run):
    space = BlockSpace(6, 2)
    state = run(space, (1, 2, 3))
    state.append(4)
    assert space.try_reserve(state, 9)
    kept, given_up = held_blocks(state).table.block_ids[:2], held_blocks(state).table.block_ids[2:]
    assert len(given_up) == 3
    space.give_back_look_ahead(state)
    assert held_blocks(state).table.block_ids == kept
    assert space.take_operations() == (ForgetBlocks(tuple(given_up)),)
    assert space.num_available_blocks == 4
    space.pool.check_integrity()


@pytest.mark.parametrize("num_tokens", [3, 4, 5])
def test_block_that_a_known_token_lies_in_is_never_given_back(run, num_tokens):
    """A part of it may have been for guessed tokens; a block for a known token that has not run is kept too."""
    space = BlockSpace(6, 2)
    state = run(space, (1, 2, 3))
    state.append(9)
    state.append(9)
    assert space.try_reserve(state, num_tokens)
    before = list(held_blocks(state).table.block_ids)
    space.give_back_look_ahead(state)
    assert (held_blocks(state).table.block_ids, space.take_operations()) == (before, ())


def test_operations_are_handed_over_once(run):
    space = BlockSpace(2, 2, enable_prefix_caching=False)
    space.close(run(space, (1,)))
    assert len(space.take_operations()) == 1
    assert space.take_operations() == ()


def test_request_knows_how_far_it_was_published(run):
    """So that a long one is not walked again from its first block; one that lost its blocks begins anew."""
    space = BlockSpace(8, 2)
    state = run(space, (1, 2, 3, 4, 5))
    node = held_blocks(state).cursor.node
    assert node is not None
    assert (held_blocks(state).cursor.num_blocks, node.token_ids) == (2, (3, 4))
    state.move_to(RequestStatus.PREEMPTED)
    space.preempt(state, by_swap=False)
    assert (held_blocks(state).cursor.num_blocks, held_blocks(state).cursor.node) == (0, None)


def test_blocks_are_placed_by_the_seed(run):
    def placed(shuffle_seed):
        return held_blocks(run(BlockSpace(32, 1, shuffle_seed=shuffle_seed), range(16))).table.block_ids

    assert placed(None) == list(range(16))
    assert placed(1) == placed(1)
    assert len({tuple(placed(seed)) for seed in (None, 1, 2)}) == 3


def test_nothing_is_swapped_where_no_host_memory_was_given(run):
    state = run(space := BlockSpace(4, 4), (1, 2, 3))
    state.move_to(RequestStatus.PREEMPTED)
    assert not space.preempt(state, by_swap=True)
    assert (state.num_computed_tokens, space.num_swapped_blocks) == (0, 0)

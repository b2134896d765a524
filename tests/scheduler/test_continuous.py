"""Continuous scheduling: a life of many requests in every policy, and each decision by itself."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oracle.chain_runner import ChainRunner
from oracle.invariants import check_output, check_queues
from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request, RequestState, RequestStatus

MAX_MODEL_LEN = 12

nums_guessed = st.lists(st.integers(0, 4), min_size=1, max_size=4)


def expected_rows(running, waiting, *, max_num_seqs, budget, is_prefill_first):
    """Who runs with how many tokens, where room is no question: in plain words, from the lists as they stand."""
    joining = waiting[: max_num_seqs - len(running)]
    if is_prefill_first:
        is_decode = {state: state.num_tokens - state.num_computed_tokens == 1 for state in running[1:]}
        prefills = [state for state, is_one in is_decode.items() if not is_one]
        decodes = [state for state, is_one in is_decode.items() if is_one]
        order = [*running[:1], *prefills, *joining, *decodes]
    else:
        order = [*running, *joining]
    rows = []
    for state in order:
        count = min(budget, state.num_tokens - state.num_computed_tokens)
        if count:
            rows.append((state, count))
        budget -= count
    for place, (state, count) in enumerate(rows):  # guesses get what is left of the budget, behind all known tokens
        is_caught_up = state.num_computed_tokens + count == state.num_tokens
        num_guessed = min(len(state.draft_token_ids), budget) if is_caught_up else 0
        rows[place] = (state, count + num_guessed)
        budget -= num_guessed
    return rows


class ContinuousSchedulerLife(RuleBasedStateMachine):
    """Requests come, run, fail, end and are aborted in any order; what is kept of their tokens is checked as well.

    Some are guessed for, and as many guesses stay as the draws say; who guesses is not asked for here.
    """

    @initialize(
        max_num_seqs=st.integers(1, 4),
        budget=st.integers(1, 9),
        is_prefill_first=st.booleans(),
        preempts_by_swap=st.booleans(),
        block_size=st.sampled_from([None, 1, 2, 3, 4]),
        num_spare_blocks=st.integers(0, 8),
        num_swap_blocks=st.sampled_from([0, 3, 99]),
        enable_prefix_caching=st.booleans(),
        shuffle_seed=st.none() | st.integers(0, 3),
    )
    def start(  # noqa: PLR0917 - Hypothesis passes them by name
        self,
        max_num_seqs,
        budget,
        is_prefill_first,
        preempts_by_swap,
        block_size,
        num_spare_blocks,
        num_swap_blocks,
        enable_prefix_caching,
        shuffle_seed,
    ):
        self.space = None
        self.runner = ChainRunner()
        if block_size is not None:
            num_blocks = -(-MAX_MODEL_LEN // block_size) + num_spare_blocks
            self.space = BlockSpace(
                num_blocks,
                block_size,
                enable_prefix_caching=enable_prefix_caching,
                num_swap_blocks=num_swap_blocks,
                shuffle_seed=shuffle_seed,
            )
            self.runner = ChainRunner(num_blocks, block_size)
        self.policy = {"max_num_seqs": max_num_seqs, "budget": budget, "is_prefill_first": is_prefill_first}
        self.scheduler = ContinuousScheduler(
            max_num_seqs,
            budget,
            blocks=self.space,
            is_prefill_first=is_prefill_first,
            preempts_by_swap=preempts_by_swap,
        )
        self.arrived: list[RequestState] = []

    @property
    def unfinished(self):
        return [state for state in self.arrived if not state.is_finished]

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=MAX_MODEL_LEN - 1), n=st.integers(1, 3))
    def add(self, prompt, n):
        request = Request(str(len(self.arrived)), None, tuple(prompt), SamplingParams(n=n))
        first = RequestState(request)
        others = [RequestState(request, sample_index=index, first_sample=first) for index in range(1, n)]
        for state in (first, *others):
            self.scheduler.add(state)
            self.arrived.append(state)

    def propose(self, nums_guessed):
        """Guesses for those that have their newest token left, as the engine does: for all anew, before each step."""
        for place, state in enumerate(self.scheduler.running):
            is_last = state.num_computed_tokens + 1 == state.num_tokens
            most = MAX_MODEL_LEN - state.num_tokens - 1 if is_last else 0
            self.scheduler.propose(state, (1,) * min(nums_guessed[place % len(nums_guessed)], most))

    def scheduled(self, nums_guessed):
        """A step that was decided, checked, and carried out as far as blocks go."""
        self.propose(nums_guessed)
        policy = self.policy
        expected = expected_rows(list(self.scheduler.running), list(self.scheduler.waiting), **policy)
        output = self.scheduler.schedule()
        check_output(output, self.scheduler, policy["max_num_seqs"], policy["budget"])
        rows = [(row.state, row.num_scheduled_tokens) for row in output.rows]
        if self.space is None:
            assert rows == expected
        if self.unfinished:
            assert self.unfinished[0] in dict(rows), "the oldest always moves"
        for state, _ in output.preempted:
            assert state.status is RequestStatus.PREEMPTED
            assert state not in output.admitted
        self.runner.prepare(output.block_operations)
        return output

    @rule(choices=st.lists(st.integers(0, 3), min_size=4, max_size=4), nums_guessed=nums_guessed)
    def step(self, choices, nums_guessed):
        """Runs one step; a request ends with its token, or when it is as long as any may be.

        As many guesses stay as a choice says; the token after them is another one than was guessed there, or any.
        """
        output = self.scheduled(nums_guessed)
        self.runner.execute(output.rows)
        ending, nums_rejected = [], []
        for row, choice in zip(output.rows, choices, strict=False):
            num_accepted = min(choice, len(row.draft_token_ids))
            nums_rejected.append(len(row.draft_token_ids) - num_accepted)
            if row.emits:
                for token_id in (*row.draft_token_ids[:num_accepted], 0 if nums_rejected[-1] else choice % 2):
                    row.state.append(token_id)
                if choice == 3 or row.state.num_tokens == MAX_MODEL_LEN:
                    ending.append(row.state)
        self.scheduler.advance(output.rows, nums_rejected)
        for state in ending:
            self.scheduler.finish(state, FinishReason.STOP)

    @rule(is_executed=st.booleans(), nums_guessed=nums_guessed)
    def fail(self, is_executed, nums_guessed):
        """A step that failed, before or after something was written."""
        output = self.scheduled(nums_guessed)
        if is_executed:
            self.runner.execute(output.rows)

    @precondition(lambda self: self.unfinished)
    @rule(choice=st.integers(0, 99))
    def abort(self, choice):
        self.scheduler.finish(self.unfinished[choice % len(self.unfinished)], FinishReason.ABORT)

    @invariant()
    def state_is_sound(self):
        check_queues(self.scheduler, max_num_seqs=self.policy["max_num_seqs"])
        assert [*self.scheduler.running, *self.scheduler.waiting] == self.unfinished, "first come, first served"

    def teardown(self):
        """Everyone finishes: the oldest moves in every step, so that steps are bounded by tokens."""
        if not hasattr(self, "arrived"):
            return
        num_steps = sum(MAX_MODEL_LEN + state.num_preemptions * MAX_MODEL_LEN for state in self.arrived) + 1
        for _ in range(num_steps * MAX_MODEL_LEN):
            if not self.scheduler.has_unfinished_requests():
                break
            self.step([0, 1, 2, 0], [0, 2])
        assert not self.unfinished
        self.runner.prepare(self.scheduler.take_operations())
        assert self.runner.num_swapped_requests == 0
        if self.space is not None:
            assert self.space.num_available_blocks == self.space.pool.num_blocks


ContinuousSchedulerLife.TestCase.settings = settings(
    deadline=None, max_examples=settings().max_examples // 3, stateful_step_count=20
)
TestContinuousSchedulerLife = ContinuousSchedulerLife.TestCase


def test_continuous_scheduler_fills_a_free_place_at_once(make_state, run_step):
    scheduler = ContinuousScheduler(2)
    first, second, third = states = [make_state(name) for name in "abc"]
    for state in states:
        scheduler.add(state)
    assert run_step(scheduler) == [(first, 1), (second, 1)]
    scheduler.finish(first, FinishReason.STOP)
    assert run_step(scheduler) == [(second, 1), (third, 1)]


def test_continuous_scheduler_takes_a_request_that_comes_while_others_run(make_state, run_step):
    scheduler = ContinuousScheduler(2)
    first, late = make_state("a"), make_state("b", (1, 2, 3))
    scheduler.add(first)
    assert run_step(scheduler) == [(first, 1)]
    scheduler.add(late)
    assert run_step(scheduler) == [(first, 1), (late, 3)]


def test_continuous_scheduler_gives_no_rows_when_nobody_came():
    scheduler = ContinuousScheduler(2)
    assert scheduler.schedule().rows == ()
    assert not scheduler.has_unfinished_requests()


def test_prompts_and_decodes_share_one_budget(make_state, run_step):
    scheduler = ContinuousScheduler(3, 4)
    first, second, third = make_state("a"), make_state("b", range(6)), make_state("c")
    for state in (first, second, third):
        scheduler.add(state)
    assert run_step(scheduler) == [(first, 1), (second, 3)]
    assert run_step(scheduler) == [(first, 1), (second, 3)]
    assert run_step(scheduler) == [(first, 1), (second, 1), (third, 1)]


def test_prefill_first_lets_prompts_go_before_decodes_but_for_the_oldest(make_state, run_step):
    scheduler = ContinuousScheduler(4, 4, is_prefill_first=True)
    first, second = make_state("a"), make_state("b")
    for state in (first, second):
        scheduler.add(state)
    assert run_step(scheduler) == [(first, 1), (second, 1)]
    third = make_state("c", range(6))
    scheduler.add(third)
    assert run_step(scheduler) == [(first, 1), (third, 3)]
    assert run_step(scheduler) == [(first, 1), (third, 3)]
    assert run_step(scheduler) == [(first, 1), (second, 1), (third, 1)]


def test_prefill_first_ends_a_prompt_before_it_lets_another_in(make_state, run_step):
    scheduler = ContinuousScheduler(4, 3, is_prefill_first=True)
    first, second, third = make_state("a"), make_state("b", range(4)), make_state("c", (1, 2))
    for state in (first, second):
        scheduler.add(state)
    assert run_step(scheduler) == [(first, 1), (second, 2)]
    scheduler.add(third)
    assert run_step(scheduler) == [(first, 1), (second, 2)]
    assert run_step(scheduler) == [(first, 1), (third, 2)]


def test_step_runs_256_tokens_unless_told_otherwise(make_state, run_step):
    """The default that `EngineConfig` tells of."""
    scheduler = ContinuousScheduler(1)
    state = make_state("a", range(300))
    scheduler.add(state)
    assert run_step(scheduler) == [(state, 256)]


def test_request_that_makes_room_recomputes_unless_told_otherwise(make_state):
    space = BlockSpace(2, 2, num_swap_blocks=2)
    scheduler = ContinuousScheduler(1, 4, blocks=space)
    state = make_state("a", (1, 2, 3))
    scheduler.add(state)
    scheduler.advance(scheduler.schedule().rows)
    space.pool.allocate(space.pool.num_free_blocks)  # somebody else takes the rest
    for token_id in (1, 2):
        state.append(token_id)
    assert scheduler.schedule().preempted == ((state, "recompute"),)


def test_prompts_that_keep_arriving_never_hold_up_the_oldest(make_state, run_step):
    """Each ends with its first token, so that there is always another one in its place."""
    scheduler = ContinuousScheduler(3, 2, is_prefill_first=True)
    oldest = make_state("oldest")
    scheduler.add(oldest)
    run_step(scheduler)
    for number in range(10):
        scheduler.add(make_state(number, (1, 2)))
        for state, _ in run_step(scheduler):
            if state is not oldest and state.num_output_tokens:
                scheduler.finish(state, FinishReason.LENGTH)
    assert oldest.num_output_tokens == 11


@pytest.fixture
def full_house(make_state, run_step):
    """Three requests that fill six blocks of two, and will not find room for a further one."""

    def make(*, by_swap=False, num_swap_blocks=6):
        space = BlockSpace(6, 2, enable_prefix_caching=False, num_swap_blocks=num_swap_blocks)
        scheduler = ContinuousScheduler(4, 100, blocks=space, preempts_by_swap=by_swap)
        states = [make_state(name, (index, 1, 2)) for index, name in enumerate("abc")]
        for state in states:
            scheduler.add(state)
        run_step(scheduler)
        run_step(scheduler)
        assert space.num_available_blocks == 0
        return scheduler, states

    return make


def test_newest_is_preempted_so_that_the_oldest_moves(full_house, make_state):
    scheduler, (first, second, third) = full_house()
    late = make_state("late")
    scheduler.add(late)
    output = scheduler.schedule()
    assert [row.state for row in output.rows] == [first, second]
    assert output.preempted == ((third, "recompute"),)
    assert third.num_computed_tokens == 0
    assert third.num_output_tokens == 2, "what was emitted stays"
    assert list(scheduler.waiting) == [third, late], "it goes on before whoever came later"


@pytest.mark.parametrize(("num_swap_blocks", "how", "num_kept"), [(2, "swap", 4), (1, "recompute", 0)])
def test_swapping_falls_back_to_recomputing_when_host_memory_is_full(full_house, num_swap_blocks, how, num_kept):
    scheduler, (*_, third) = full_house(by_swap=True, num_swap_blocks=num_swap_blocks)
    assert scheduler.schedule().preempted == ((third, how),)
    assert third.num_computed_tokens == num_kept


def test_step_that_takes_blocks_back_lets_nobody_in(full_house, make_state):
    scheduler, _ = full_house()
    scheduler.add(make_state("late"))
    output = scheduler.schedule()
    assert output.preempted
    assert output.admitted == ()


def test_nobody_overtakes_a_request_that_waits_for_room(full_house, make_state, run_step):
    scheduler, (first, second, third) = full_house()
    large, small = make_state("large", range(9)), make_state("small")
    scheduler.finish(third, FinishReason.STOP)
    scheduler.add(large)
    scheduler.add(small)
    assert [state for state, _ in run_step(scheduler)] == [first, second], "the small one would fit, and waits"
    for state in (first, second):
        scheduler.finish(state, FinishReason.STOP)
    assert run_step(scheduler) == [(large, 9), (small, 1)]


def test_no_step_reserves_a_block_that_it_does_not_need(make_state, run_step):
    space = BlockSpace(8, 4)
    scheduler = ContinuousScheduler(1, 5, blocks=space)
    state = make_state("a", range(13))
    scheduler.add(state)
    held = []
    for _ in range(8):
        run_step(scheduler)
        held.append((state.num_computed_tokens, len(state.blocks.table.block_ids)))
    assert held == [(5, 2), (10, 3), (13, 4), (14, 4), (15, 4), (16, 4), (17, 5), (18, 5)]


def test_tokens_of_a_request_that_is_preempted_again_are_given_to_others(make_state, run_step):
    """Under "prefill first" a newcomer may have to make room in the very step that let it in."""
    space = BlockSpace(6, 2, enable_prefix_caching=False)
    scheduler = ContinuousScheduler(8, 4, blocks=space, is_prefill_first=True)
    first, second = make_state("a"), make_state("b", (1, 2, 3))
    scheduler.add(first)
    scheduler.add(second)
    run_step(scheduler)
    third = make_state("c")
    scheduler.add(third)
    run_step(scheduler)
    late = make_state("late", (1, 2))
    scheduler.add(late)
    output = scheduler.schedule()
    assert output.preempted == ((late, "recompute"),)
    assert output.admitted == ()
    assert [(row.state, row.num_scheduled_tokens) for row in output.rows] == [(first, 1), (second, 1), (third, 1)]


def test_tokens_of_a_request_that_had_not_come_up_are_no_others(make_state, run_step):
    """It makes room, and gives no share of the budget back: it had none."""
    space = BlockSpace(12, 1, enable_prefix_caching=False)
    scheduler = ContinuousScheduler(5, 11, blocks=space)
    *others, newest = [make_state(name, (1, 2)) for name in "abcd"] + [make_state("e", (1, 2, 3))]
    for state in (*others, newest):
        scheduler.add(state)
    run_step(scheduler)
    scheduler._max_num_batched_tokens = 3
    output = scheduler.schedule()
    assert output.preempted == ((newest, "recompute"),)
    assert [(row.state, row.num_scheduled_tokens) for row in output.rows] == [(state, 1) for state in others[:3]]


@pytest.fixture
def guess_for():
    """Lets a scheduler look ahead in the next step; gives the step, without running it."""

    def schedule(scheduler, draft_by_state):
        for state in scheduler.running:
            scheduler.propose(state, draft_by_state.get(state, ()))
        output = scheduler.schedule()
        return output, [(row.state, row.num_scheduled_tokens, row.draft_token_ids) for row in output.rows]

    return schedule


@pytest.mark.parametrize(
    ("budget", "guessed"),
    [(5, ((), ())), (6, ((7,), ())), (8, ((7, 8, 9), ())), (10, ((7, 8, 9), (5, 6))), (99, ((7, 8, 9), (5, 6)))],
)
def test_guesses_run_with_what_all_known_tokens_leave_of_the_budget(make_state, run_step, guess_for, budget, guessed):
    """Those of a request that comes in are known tokens too."""
    scheduler = ContinuousScheduler(4, budget)
    first, second, late = make_state("a"), make_state("b"), make_state("late", (1, 2, 3))
    for state in (first, second):
        scheduler.add(state)
    run_step(scheduler)
    scheduler.add(late)
    output, rows = guess_for(scheduler, {first: (7, 8, 9), second: (5, 6)})
    assert rows == [(first, 1 + len(guessed[0]), guessed[0]), (second, 1 + len(guessed[1]), guessed[1]), (late, 3, ())]
    assert output.num_scheduled_tokens <= budget
    assert [row.num_logits for row in output.rows] == [1 + len(guessed[0]), 1 + len(guessed[1]), 1]


def test_request_in_the_middle_of_its_prompt_looks_nowhere(make_state, guess_for):
    scheduler = ContinuousScheduler(4, 2)
    state = make_state("a", range(6))
    scheduler.add(state)
    scheduler.admit()
    assert guess_for(scheduler, {state: (7, 8)})[1] == [(state, 2, ())]


def test_guess_takes_no_block_from_anybody_and_is_cut_to_what_fits(make_state, run_step, guess_for):
    """Two requests of two tokens fill two of three blocks: the third has room for the newest and one guess."""
    space = BlockSpace(5, 2, enable_prefix_caching=False)
    scheduler = ContinuousScheduler(4, 99, blocks=space)
    first, second = states = [make_state(name, (index, 1)) for index, name in enumerate("ab")]
    for state in states:
        scheduler.add(state)
    run_step(scheduler)
    output, rows = guess_for(scheduler, {first: (7, 7, 7, 7, 7, 7), second: (8, 8, 8, 8)})
    assert rows == [(first, 4, (7, 7, 7)), (second, 2, (8,))], "each a second block; the fifth is the oldest's"
    assert (output.preempted, space.num_available_blocks) == ((), 0)


def test_guess_is_cut_to_nothing_where_blocks_are_full(full_house, run_step, guess_for):
    scheduler, (first, second, third) = full_house()
    scheduler.finish(third, FinishReason.STOP)
    run_step(scheduler)
    assert scheduler.blocks.num_available_blocks == 0
    output, rows = guess_for(scheduler, dict.fromkeys((first, second), (7, 7)))
    assert (rows, output.preempted) == ([(first, 1, ()), (second, 1, ())], ())


def test_request_that_makes_room_loses_its_guess(full_house, guess_for):
    scheduler, (first, second, third) = full_house()
    output, rows = guess_for(scheduler, dict.fromkeys((first, second, third), (7, 7, 7)))
    assert output.preempted == ((third, "recompute"),)
    assert third.draft_token_ids == ()
    assert [(state, drafted) for state, _, drafted in rows] == [(first, (7,)), (second, (7,))]

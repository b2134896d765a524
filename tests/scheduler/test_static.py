"""Static scheduling, beside a plain model: the batch stays as it is until its last member has ended."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oracle.invariants import check_output, check_queues
from refinfer.errors import StatusTransitionError
from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import Request, RequestState, StaticScheduler


class StaticSchedulerLife(RuleBasedStateMachine):
    """Requests come and end in any order; the model says who has to run."""

    @initialize(max_num_seqs=st.integers(1, 4))
    def start(self, max_num_seqs):
        self.scheduler = StaticScheduler(max_num_seqs)
        self.max_num_seqs = max_num_seqs
        self.waiting: list[RequestState] = []
        self.batch: list[RequestState] = []
        self.arrived: list[RequestState] = []

    @rule(num_tokens=st.integers(1, 3))
    def add(self, num_tokens):
        state = RequestState(Request(str(len(self.arrived)), None, (1,) * num_tokens, SamplingParams()))
        self.scheduler.add(state)
        self.arrived.append(state)
        self.waiting.append(state)

    def scheduled(self):
        """The rows of the next step, checked against the model."""
        if all(state.is_finished for state in self.batch):
            self.batch = self.waiting[: self.max_num_seqs]
            self.waiting = self.waiting[self.max_num_seqs :]
        output = self.scheduler.schedule()
        check_output(output, self.scheduler, self.max_num_seqs, None)
        assert [row.state for row in output.rows] == self.batch, "the same members in the same order, ended ones too"
        assert all(row.emits for row in output.rows if not row.state.is_finished), "a static batch never chunks"
        return output

    @rule(ends=st.sets(st.integers(0, 3)))
    def step(self, ends):
        """Runs one step, after which the rows at some places end."""
        output = self.scheduled()
        self.scheduler.advance(output.rows)
        for place, row in enumerate(output.rows):
            if not row.state.is_finished:
                row.state.append(0)
                if place in ends:
                    self.scheduler.finish(row.state, FinishReason.STOP)

    @rule()
    def fail(self):
        """A step that failed is scheduled once more; nobody is lost by it."""
        self.scheduled()
        self.scheduled()

    @rule(choice=st.integers(0, 99))
    def abort(self, choice):
        unfinished = [state for state in self.arrived if not state.is_finished]
        if unfinished:
            state = unfinished[choice % len(unfinished)]
            self.scheduler.finish(state, FinishReason.ABORT)
            if state in self.waiting:
                self.waiting.remove(state)

    @invariant()
    def state_is_sound(self):
        check_queues(self.scheduler, max_num_seqs=self.max_num_seqs)
        assert list(self.scheduler.waiting) == self.waiting

    @invariant()
    def knows_whether_somebody_is_left(self):
        assert self.scheduler.has_unfinished_requests() == any(not state.is_finished for state in self.arrived)

    def teardown(self):
        """Everyone finishes, within one step for each request."""
        if not hasattr(self, "arrived"):
            return
        for _ in range(len(self.arrived)):
            self.step({0, 1, 2, 3})
        assert all(state.is_finished for state in self.arrived)
        assert not self.scheduler.has_unfinished_requests()
        assert self.scheduler.schedule().rows == ()


StaticSchedulerLife.TestCase.settings = settings(
    deadline=None, max_examples=settings().max_examples // 2, stateful_step_count=20
)
TestStaticSchedulerLife = StaticSchedulerLife.TestCase


def test_static_scheduler_keeps_a_batch_until_its_last_member_ends(make_state, run_step):
    scheduler = StaticScheduler(2)
    first, second, third = states = [make_state(name) for name in "abc"]
    for state in states:
        scheduler.add(state)
    assert run_step(scheduler) == [(first, 1), (second, 1)]
    scheduler.finish(first, FinishReason.STOP)
    assert run_step(scheduler) == [(first, 1), (second, 1)], "the ended row stays, and nobody takes its place"
    scheduler.finish(second, FinishReason.STOP)
    assert scheduler.has_unfinished_requests()
    assert run_step(scheduler) == [(third, 1)]


def test_static_scheduler_lets_nobody_join_a_batch_with_free_places(make_state, run_step):
    scheduler = StaticScheduler(2)
    first, late = make_state("a", (1, 2)), make_state("b")
    scheduler.add(first)
    assert run_step(scheduler) == [(first, 2)]
    scheduler.add(late)
    assert run_step(scheduler) == [(first, 1)]


def test_static_scheduler_names_whom_it_admits(make_state):
    scheduler = StaticScheduler(2)
    states = [make_state(name) for name in "abc"]
    for state in states:
        scheduler.add(state)
    assert scheduler.schedule().admitted == tuple(states[:2])
    assert scheduler.schedule().admitted == ()


def test_static_scheduler_gives_no_rows_when_nobody_came():
    scheduler = StaticScheduler(2)
    assert scheduler.schedule().rows == ()
    assert not scheduler.has_unfinished_requests()


def test_static_scheduler_refuses_to_end_a_request_twice(make_state):
    scheduler = StaticScheduler(2)
    state = make_state()
    scheduler.add(state)
    scheduler.schedule()
    scheduler.finish(state, FinishReason.STOP)
    with pytest.raises(StatusTransitionError):
        scheduler.finish(state, FinishReason.ABORT)

"""Continuous scheduling, beside a plain model: a queue, and a list of who runs."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import ContinuousScheduler, Request, RequestState


class ContinuousSchedulerLife(RuleBasedStateMachine):
    """Requests come and end in any order; the model says who has to run."""

    @initialize(max_num_seqs=st.integers(1, 4))
    def start(self, max_num_seqs):
        self.scheduler = ContinuousScheduler(max_num_seqs)
        self.max_num_seqs = max_num_seqs
        self.waiting: list[RequestState] = []
        self.running: list[RequestState] = []
        self.arrived: list[RequestState] = []

    @rule()
    def add(self):
        state = RequestState(Request(str(len(self.arrived)), None, (1,), SamplingParams()))
        self.scheduler.add(state)
        self.arrived.append(state)
        self.waiting.append(state)

    def scheduled(self):
        """The rows of the next step, checked against the model."""
        self.running = [state for state in self.running if not state.is_finished]
        num_free = self.max_num_seqs - len(self.running)
        self.running += self.waiting[:num_free]
        self.waiting = self.waiting[num_free:]
        rows = self.scheduler.schedule()
        assert rows == self.running, "oldest first; who waits longest joins first; who ended has left"
        return rows

    @rule(ends=st.sets(st.integers(0, 3)))
    def step(self, ends):
        """Runs one step, after which the rows at some places end."""
        rows = self.scheduled()
        for place in ends & set(range(len(rows))):
            rows[place].finish_reason = FinishReason.STOP

    @rule(order=st.randoms())
    def fail_after_shuffling_the_rows(self, order):
        """A step that failed is scheduled once more; nobody is lost by it, and the list is the caller's."""
        order.shuffle(self.scheduled())
        self.scheduled()

    @invariant()
    def never_runs_more_than_it_may(self):
        assert len(self.running) <= self.max_num_seqs

    @invariant()
    def knows_whether_somebody_is_left(self):
        assert self.scheduler.has_unfinished_requests() == any(not state.is_finished for state in self.arrived)

    def teardown(self):
        """Everyone finishes, within one step for each request."""
        if not hasattr(self, "arrived"):
            return
        for _ in range(len(self.arrived)):
            for state in self.scheduled():
                state.finish_reason = FinishReason.LENGTH
        assert all(state.is_finished for state in self.arrived)
        assert not self.scheduler.has_unfinished_requests()
        assert self.scheduler.schedule() == []


ContinuousSchedulerLife.TestCase.settings = settings(
    deadline=None, max_examples=settings().max_examples // 2, stateful_step_count=20
)
TestContinuousSchedulerLife = ContinuousSchedulerLife.TestCase


def test_continuous_scheduler_fills_a_free_place_at_once(make_state):
    scheduler = ContinuousScheduler(2)
    first, second, third = states = [make_state(name) for name in "abc"]
    for state in states:
        scheduler.add(state)
    assert scheduler.schedule() == [first, second]
    first.finish_reason = FinishReason.STOP
    assert scheduler.schedule() == [second, third]


def test_continuous_scheduler_takes_a_request_that_comes_while_others_run(make_state):
    scheduler = ContinuousScheduler(2)
    first, late = make_state("a"), make_state("b")
    scheduler.add(first)
    assert scheduler.schedule() == [first]
    scheduler.add(late)
    assert scheduler.schedule() == [first, late]


def test_continuous_scheduler_gives_no_rows_when_nobody_came():
    scheduler = ContinuousScheduler(2)
    assert scheduler.schedule() == []
    assert not scheduler.has_unfinished_requests()


def test_rows_of_a_step_are_the_callers_own_list(make_state):
    scheduler = ContinuousScheduler(2)
    states = [make_state("a"), make_state("b")]
    for state in states:
        scheduler.add(state)
    scheduler.schedule().reverse()
    assert scheduler.schedule() == states

"""Continuous scheduling: each step spends a budget of tokens on whoever runs, and lets others in as there is room."""

from refinfer.scheduler.block_space import BlockSpace
from refinfer.scheduler.output import ScheduledRow, SchedulerOutput
from refinfer.scheduler.queues import RequestQueues
from refinfer.scheduler.request import RequestState


class ContinuousScheduler(RequestQueues):
    """Lets requests catch up with their known tokens, oldest first.

    There is no prefill phase and no decode phase: a request runs as many of its known tokens as the budget leaves
    for it, and one whose tokens have all run emits the next. First come, first served: nobody overtakes a request
    that waits for room. When blocks run out the newest is preempted, so that the oldest always moves.

    Args:
        max_num_seqs: Most requests that run at a time.
        max_num_batched_tokens: Most tokens in one step.
        blocks: The blocks of a paged cache; None where keys and values need no reservation.
        is_prefill_first: Whether requests with more than one token to run, and then those that wait, come before
            those that decode; otherwise all that run come before those that wait. The oldest comes first either way,
            or prompts that keep arriving would hold it up for ever.
        preempts_by_swap: Whether a preempted request's keys and values go to host memory; otherwise it recomputes.
    """

    def __init__(
        self,
        max_num_seqs: int,
        max_num_batched_tokens: int = 256,
        *,
        blocks: BlockSpace | None = None,
        is_prefill_first: bool = False,
        preempts_by_swap: bool = False,
    ) -> None:
        super().__init__(blocks)
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._is_prefill_first = is_prefill_first
        self._preempts_by_swap = preempts_by_swap

    def schedule(self) -> SchedulerOutput:
        """Decides who runs in the next step, and with how many tokens."""
        step = _Step(self, self._max_num_batched_tokens, self._preempts_by_swap)
        running = list(self.running)
        if self._is_prefill_first:
            prefills = [state for state in running[1:] if state.num_tokens - state.num_computed_tokens > 1]
            step.run(running[:1])
            step.run(prefills)
            step.admit(self._max_num_seqs)
            step.run([state for state in running[1:] if state not in prefills])
        else:
            step.run(running)
            step.admit(self._max_num_seqs)
        step.look_ahead()
        return step.output()


class _Step:
    """One step in the making.

    Args:
        queues: Who waits and who runs.
        num_tokens_left: The budget.
        preempts_by_swap: How blocks are taken back.
    """

    def __init__(self, queues: RequestQueues, num_tokens_left: int, preempts_by_swap: bool) -> None:  # noqa: FBT001
        self._queues = queues
        self._num_tokens_left = num_tokens_left
        self._preempts_by_swap = preempts_by_swap
        self._num_scheduled_by_state: dict[RequestState, int] = {}
        self._admitted: list[RequestState] = []
        self._preempted: list[tuple[RequestState, str]] = []

    def run(self, states: list[RequestState]) -> None:
        """Schedules requests that run, oldest first, and preempts the newest where blocks run out."""
        is_preempted = {state for state, _ in self._preempted}
        for state in states:
            if not self._num_tokens_left:
                return
            if state in is_preempted:
                continue
            num_tokens = min(state.num_tokens - state.num_computed_tokens, self._num_tokens_left)
            while not self._queues.try_reserve(state, num_tokens):
                victim = self._queues.running[-1]
                self._preempt(victim)
                is_preempted.add(victim)
                if victim is state:
                    break
            else:
                self._schedule(state, num_tokens)

    def admit(self, max_num_seqs: int) -> None:
        """Lets those that wait in, first come first served, while there is room for them.

        A step that had to take blocks back lets nobody in.
        """
        queues = self._queues
        while queues.waiting and self._num_tokens_left and len(queues.running) < max_num_seqs and not self._preempted:
            state = queues.waiting[0]
            if not queues.admit():
                return
            self._admitted.append(state)
            num_tokens = min(state.num_tokens - state.num_computed_tokens, self._num_tokens_left)
            if queues.try_reserve(state, num_tokens):
                self._schedule(state, num_tokens)

    def look_ahead(self) -> None:
        """Lets what is left of the budget verify guessed tokens, oldest request first.

        They come after everything else, and take no block from anybody, so that a guess holds nobody up.
        """
        for state, num_tokens in self._num_scheduled_by_state.items():
            if state.draft_token_ids:
                num_guessed = self._queues.look_ahead(state, num_tokens, self._num_tokens_left)
                self._num_scheduled_by_state[state] += num_guessed
                self._num_tokens_left -= num_guessed

    def output(self) -> SchedulerOutput:
        """Gives what was decided."""
        rows = tuple(ScheduledRow.of(state, num_tokens) for state, num_tokens in self._num_scheduled_by_state.items())
        return SchedulerOutput(rows, self._queues.take_operations(), tuple(self._admitted), tuple(self._preempted))

    def _schedule(self, state: RequestState, num_tokens: int) -> None:
        self._num_scheduled_by_state[state] = num_tokens
        self._num_tokens_left -= num_tokens

    def _preempt(self, state: RequestState) -> None:
        """Takes a request's blocks back, also where it was scheduled in this step already."""
        self._num_tokens_left += self._num_scheduled_by_state.pop(state, 0)
        self._preempted.append((state, self._queues.preempt(state, by_swap=self._preempts_by_swap)))
        if state in self._admitted:
            self._admitted.remove(state)

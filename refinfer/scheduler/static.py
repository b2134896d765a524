"""Static scheduling: fill a batch, and run it to its last member."""

from refinfer.sampling import FinishReason
from refinfer.scheduler.output import ScheduledRow, SchedulerOutput
from refinfer.scheduler.queues import RequestQueues
from refinfer.scheduler.request import RequestState, RequestStatus


class StaticScheduler(RequestQueues):
    """Keeps the members of a batch together until all have ended, first come first served.

    Rows that end early stay in the batch; nobody joins it.

    Args:
        max_num_seqs: Most requests in a batch.
    """

    def __init__(self, max_num_seqs: int) -> None:
        super().__init__()
        self._max_num_seqs = max_num_seqs

    def has_unfinished_requests(self) -> bool:
        """Tells whether a request waits or runs."""
        return bool(self.waiting) or any(not state.is_finished for state in self.running)

    def schedule(self) -> SchedulerOutput:
        """Gives the rows of the next step, ended ones included, in a fixed order."""
        admitted = []
        if all(state.is_finished for state in self.running):
            self.running = []
            while self.waiting and len(self.running) < self._max_num_seqs:
                admitted.append(self.waiting[0])
                self.admit()
        rows = tuple(ScheduledRow.of(state, state.num_tokens - state.num_computed_tokens) for state in self.running)
        return SchedulerOutput(rows, admitted=tuple(admitted))

    def finish(self, state: RequestState, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """Ends a request; if it runs, its row stays until the batch has ended.

        Raises:
            StatusTransitionError: It has ended already.
        """
        is_running = state.status is RequestStatus.RUNNING
        state.finish(reason, stop_reason)
        if not is_running:
            self.waiting.remove(state)

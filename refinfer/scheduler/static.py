"""Static scheduling: fill a batch, and run it to its last member."""

from collections import deque

from refinfer.scheduler.request import RequestState


class StaticScheduler:
    """Keeps the members of a batch together until all have ended, first come first served.

    Rows that end early stay in the batch; nobody joins it.

    Args:
        max_num_seqs: Most requests in a batch.
    """

    def __init__(self, max_num_seqs: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._waiting: deque[RequestState] = deque()
        self._batch: list[RequestState] = []

    def add(self, state: RequestState) -> None:
        """Queues a request."""
        self._waiting.append(state)

    def has_unfinished_requests(self) -> bool:
        """Tells whether a request waits or runs."""
        return bool(self._waiting) or any(not state.is_finished for state in self._batch)

    def schedule(self) -> list[RequestState]:
        """Gives the rows of the next step, ended ones included, in a fixed order."""
        if all(state.is_finished for state in self._batch):
            size = min(self._max_num_seqs, len(self._waiting))
            self._batch = [self._waiting.popleft() for _ in range(size)]
        return list(self._batch)

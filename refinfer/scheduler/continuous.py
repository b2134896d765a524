"""Continuous scheduling: a place that falls free is given away at the next step."""

from collections import deque

from refinfer.scheduler.request import RequestState


class ContinuousScheduler:
    """Runs up to `max_num_seqs` requests at a time, first come first served.

    Args:
        max_num_seqs: Most requests in one step.
    """

    def __init__(self, max_num_seqs: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._waiting: deque[RequestState] = deque()
        self._running: list[RequestState] = []

    def add(self, state: RequestState) -> None:
        """Queues a request."""
        self._waiting.append(state)

    def has_unfinished_requests(self) -> bool:
        """Tells whether a request waits or runs."""
        return bool(self._waiting) or any(not state.is_finished for state in self._running)

    def schedule(self) -> list[RequestState]:
        """Gives the rows of the next step, oldest first; ended requests leave, waiting ones join."""
        self._running = [state for state in self._running if not state.is_finished]
        while self._waiting and len(self._running) < self._max_num_seqs:
            self._running.append(self._waiting.popleft())
        return list(self._running)

"""Hands cases to this process and to others beside it, and gives their reports in the order of the cases."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType

import torch

from oracle.case_check import CaseReport, CaseTask, check_case
from oracle.errors import WorkerDied

_NUM_QUEUED_PER_WORKER = 5
"""One that runs and others that wait, so that no worker idles while this process is at a long case of its own."""

_WORK = "checks cases"


class CaseWorkers:
    """Checks cases in several processes, of which this is one.

    A case goes to another process while one has room, else it runs here and now. Others are started afresh rather
    than forked, since a fork takes over locks and threads in whatever state they are.

    Args:
        num_processes: How many, with this one; 1 starts none.
    """

    def __init__(self, num_processes: int) -> None:
        self._num_workers = num_processes - 1
        self._executor: ProcessPoolExecutor | None = None
        self._begun: deque[tuple[CaseTask, CaseReport | Future[CaseReport]]] = deque()

    def __enter__(self) -> "CaseWorkers":  # noqa: PYI034 - the shape checks cannot read `Self`
        """Starts the other processes."""
        if self._num_workers:
            self._executor = worker_pool(self._num_workers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the other processes; a case that one of them is at is finished before, others are not begun."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def check(self, task: CaseTask) -> None:
        """Begins a case; without room elsewhere it is finished when this returns."""
        num_queued = sum(isinstance(result, Future) and not result.done() for _, result in self._begun)
        if self._executor is None or num_queued >= _NUM_QUEUED_PER_WORKER * self._num_workers:
            self._begun.append((task, check_case(task)))
            return
        try:
            self._begun.append((task, self._executor.submit(check_case, task)))
        except BrokenProcessPool as error:
            raise worker_died(_WORK) from error

    def finished(self) -> Iterator[CaseReport]:
        """Gives each report before which none is missing, once.

        Raises:
            OracleError: A case could not be judged, or a process died.
        """
        while self._begun:
            _, result = self._begun[0]
            if isinstance(result, Future) and not result.done():
                return
            yield self._take_first()

    def rest(self) -> Iterator[CaseReport]:
        """Gives each report of what was begun, once; a case that waits for another process is checked in this one.

        Raises:
            OracleError: A case could not be judged, or a process died.
        """
        while self._begun:
            if self._check_one_that_waits():
                yield from self.finished()
            else:
                yield self._take_first()

    def _check_one_that_waits(self) -> bool:
        """Checks the last case that no other process has taken yet; tells whether there was one."""
        for place in reversed(range(len(self._begun))):
            task, result = self._begun[place]
            if isinstance(result, Future) and result.cancel():
                self._begun[place] = (task, check_case(task))
                return True
        return False

    def _take_first(self) -> CaseReport:
        _, result = self._begun[0]
        try:
            report = result.result() if isinstance(result, Future) else result
        except BrokenProcessPool as error:
            raise worker_died(_WORK) from error
        self._begun.popleft()
        return report


def worker_pool(num_workers: int) -> ProcessPoolExecutor:
    """Makes processes with as many threads as this one, started afresh."""
    return ProcessPoolExecutor(
        num_workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(torch.get_num_threads(),),
    )


def _start_worker(num_threads: int) -> None:
    """Prepares a process; whoever interrupts the run means the process that shares cases out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(num_threads)


def worker_died(work: str) -> WorkerDied:
    """Makes the error of a process that ended before its time.

    Args:
        work: What such a process does.
    """
    message = f"a process that {work} died, perhaps for want of memory; run again with --processes 1"
    return WorkerDied(message)

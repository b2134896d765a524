"""Fills a kill matrix: one row after another, in as many processes as there are."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict

from oracle.case_workers import worker_died, worker_pool
from oracle.faults import FAULTS, NO_OP_FAULTS
from oracle.matrix.fill import MatrixSettings, fill_row
from oracle.matrix.kills import FaultRow, KillMatrix
from oracle.report import environment

_WORK = "fills the matrix"


def fill_matrix(
    names: Sequence[str],
    settings: MatrixSettings,
    *,
    num_processes: int = 1,
    on_row: Callable[[FaultRow], None] = lambda _: None,
) -> KillMatrix:
    """Plants faults one at a time, and gives the matrix with a row for each, in their order.

    Args:
        names: The faults, and those that are none.
        settings: How long is looked.
        num_processes: Processes among which the rows are shared; each row is filled on one core.
        on_row: Called with each row as it comes.

    Raises:
        WorkerDied: A process ended before its time.
    """
    rows = {}
    for row in _rows(names, settings, num_processes):
        rows[row.fault] = row
        on_row(row)
    return KillMatrix(tuple(rows[name] for name in names), asdict(settings), environment())


def _rows(names: Sequence[str], settings: MatrixSettings, num_processes: int) -> Iterator[FaultRow]:
    if num_processes == 1:
        for name in names:
            yield _filled(name, settings)
        return
    with worker_pool(num_processes) as executor:
        futures = [executor.submit(_filled, name, settings) for name in names]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise worker_died(_WORK) from error
        finally:
            executor.shutdown(cancel_futures=True)


def _filled(name: str, settings: MatrixSettings) -> FaultRow:
    return fill_row(FAULTS[name] if name in FAULTS else NO_OP_FAULTS[name], settings)

from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from oracle.errors import WorkerDied
from oracle.faults import FAULTS, NO_OP_FAULTS
from oracle.matrix import run
from oracle.matrix.fill import MatrixSettings
from oracle.matrix.run import fill_matrix

pytestmark = pytest.mark.without_shape_checks

SETTINGS = MatrixSettings.of_cases(2, patience=1, stops_at_first=True)


def test_rows_come_in_the_order_of_their_faults():
    names = ["whole_distribution_replaces", "norm_epsilon", next(iter(NO_OP_FAULTS))]
    told = []
    matrix = fill_matrix(names, SETTINGS, on_row=lambda row: told.append(row.fault))
    assert [row.fault for row in matrix.rows] == told == names
    assert [row.first is not None for row in matrix.rows] == [True, True, False]
    assert matrix.settings["seed"] == 0
    assert matrix.environment["threads"] == 1


def test_process_that_dies_is_told(monkeypatch):
    broken = Mock(submit=Mock(side_effect=lambda *_: Mock()), shutdown=Mock())
    monkeypatch.setattr(run, "worker_pool", lambda _: nullcontext(broken))
    monkeypatch.setattr(run, "as_completed", Mock(side_effect=BrokenProcessPool))
    with pytest.raises(WorkerDied, match="a process that fills the matrix died"):
        fill_matrix(["norm_epsilon"], SETTINGS, num_processes=2)
    broken.shutdown.assert_called_once_with(cancel_futures=True)


def test_processes_fill_the_same_rows():
    names = ["norm_epsilon", "whole_distribution_replaces"]
    alone = fill_matrix(names, SETTINGS)
    together = fill_matrix(names, SETTINGS, num_processes=2)
    assert [row.fault for row in together.rows] == names
    assert [set(row.kills) for row in together.rows] == [set(row.kills) for row in alone.rows]
    assert set(names) <= FAULTS.keys()

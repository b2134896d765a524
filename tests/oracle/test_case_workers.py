"""Cases go to other processes and come back in their order, whatever ends first."""

import os
from collections import Counter
from dataclasses import replace

import pytest
import torch

from oracle.case_check import CaseReport, CaseTask, check_case
from oracle.case_workers import CaseWorkers
from oracle.checkpoints import CheckpointSpec
from oracle.errors import ReferenceUnavailable, WorkerDied
from oracle.observation import Observation
from oracle.properties import Property
from oracle.scenario import RequestSpec, Scenario

pytestmark = pytest.mark.without_shape_checks

SCENARIO = Scenario((RequestSpec((1, 2), max_tokens=3),), checkpoint=CheckpointSpec())


def says_where(case, mode):
    """Tells in its figures which process it ran in, and with how many threads."""
    del case, mode
    return Observation(num_positions=os.getpid(), num_rows=torch.get_num_threads())


def ends_the_process(case, mode):
    """Kills the process it runs in, as a system without memory does."""
    del case, mode
    os._exit(9)


def cannot_judge(case, mode):
    """A check that lacks what it needs."""
    del case, mode
    message = "no reference"
    raise ReferenceUnavailable(message)


def task(index, check):
    """A case that is held to one check."""
    return CaseTask(index, SCENARIO, None, ((Property("own", "Does it hold?", check), "none"),))


def test_one_process_checks_here_and_now():
    with CaseWorkers(1) as workers:
        workers.check(task(0, says_where))
        (report,) = workers.finished()
        assert report == check_case(task(0, says_where))
        assert list(workers.rest()) == []


def test_cases_of_two_processes_come_back_in_their_order():
    tasks = [replace(task(index, says_where), index=index) for index in range(9)]
    reports: list[CaseReport] = []
    with CaseWorkers(2) as workers:
        for each in tasks:
            workers.check(each)
            reports += workers.finished()
        reports += workers.rest()
        workers.check(task(9, cannot_judge))
        with pytest.raises(ReferenceUnavailable):
            list(workers.rest())
    assert [report.task.index for report in reports] == list(range(9))
    seen = [report.seen["own", "none"] for report in reports]
    observations = [each for each in seen if isinstance(each, Observation)]
    count_by_process = Counter(each.num_positions for each in observations)
    assert len(count_by_process) == 2, "one process did everything"
    assert os.getpid() in count_by_process
    assert {each.num_rows for each in observations} == {torch.get_num_threads()}


def test_process_that_dies_ends_the_run():
    with CaseWorkers(2) as workers:
        workers.check(task(0, ends_the_process))
        with pytest.raises(WorkerDied):
            list(workers.rest())

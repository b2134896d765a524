"""A drive lets requests arrive and go when the scenario says, and looks at what is left."""

from dataclasses import replace

import pytest

from oracle import drive as drive_module
from oracle.drive import Drive, check_all_given_back
from oracle.errors import InvariantViolation, OutcomeMismatch
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import requests_of, symbolic_core

TWO = Scenario(
    (RequestSpec((1, 2, 3), 6, ignore_eos=True), RequestSpec((2,), 6, ignore_eos=True, arrival=3)),
    checkpoint=None,
    is_symbolic=True,
)


def driven(scenario, mode="paged"):
    drive = Drive(symbolic_core(scenario, mode), scenario, requests_of(scenario))
    drive.run()
    return drive


def test_requests_arrive_at_their_step():
    drive = driven(TWO)
    assert drive.num_steps == 3 + 6
    assert [len(own.samples()[0].output.token_ids) for own in drive.driven] == [6, 6]


def test_an_abort_ends_a_request_and_leaves_its_neighbour():
    first, second = TWO.requests
    drive = driven(replace(TWO, requests=(replace(first, abort_step=2), second)))
    assert [own.samples()[0].output.finish_reason for own in drive.driven] == ["abort", "length"]
    assert [own.was_aborted for own in drive.driven] == [True, False]
    assert drive.driven[0].samples()[0].output.token_ids == driven(TWO).driven[0].samples()[0].output.token_ids[:2]


def test_a_block_that_is_left_is_seen():
    drive = driven(TWO)
    drive.core.scheduler.blocks.pool.allocate(1)
    with pytest.raises(InvariantViolation, match="1 blocks are left"):
        check_all_given_back(drive.core)


def test_a_run_without_an_end_is_stopped(monkeypatch):
    monkeypatch.setattr(drive_module, "MIN_MAX_STEPS", 4)
    monkeypatch.setattr(drive_module, "MAX_STEPS_PER_TOKEN", 0)
    with pytest.raises(OutcomeMismatch, match="have not ended"):
        driven(TWO)

from unittest.mock import Mock

import pytest

from oracle.errors import ScenarioError
from oracle.faults import FAULTS, NO_OP_FAULTS
from oracle.matrix import fill, lanes
from oracle.matrix.fill import MatrixSettings, fill_row

pytestmark = pytest.mark.without_shape_checks

SETTINGS = MatrixSettings.of_cases(3, max_seconds=20.0)


def test_row_tells_what_saw_a_fault_and_where_it_sits():
    fault = FAULTS["outputs_lost_on_preemption"]
    row = fill_row(fault, SETTINGS)
    assert row.first is not None
    assert row.first.seconds >= row.kills["symbolic"].seconds > 0.0
    assert (row.sources, row.needs, row.expected) == (fault.sources, fault.needs, fault.seen_by)
    assert row.case is not None
    assert row.size is not None
    assert row.size[0] <= 3
    assert row.location is not None
    assert row.place is not None
    assert "refinfer/scheduler/queues.py" in row.location.files


def test_row_of_the_law_is_located_by_what_the_law_asks():
    row = fill_row(FAULTS["whole_distribution_replaces"], MatrixSettings.of_cases(1, max_seconds=5.0))
    assert row.kills.keys() == {"distribution"}
    assert row.case is None
    assert row.location is not None
    assert row.location.files == ("refinfer/speculative/verifier.py",)


def test_fault_that_the_law_sees_first_is_explained_by_a_case_all_the_same():
    """A pair of distributions is no case that can be run again, and takes a thousandth of the time of one."""
    row = fill_row(FAULTS["temperature_squared"], SETTINGS)
    assert row.kills["distribution"].lane == "pairs of distributions"
    assert row.place is not None


def test_row_of_a_fault_that_is_none_is_empty():
    name = next(iter(NO_OP_FAULTS))
    row = fill_row(NO_OP_FAULTS[name], MatrixSettings.of_cases(1, patience=1))
    assert (row.first, row.kills, row.location) == (None, {}, None)
    assert row.examples == {
        "symbolic schedules": 15,
        "model schedules": 3,
        "cases": 1,
        "pairs of distributions": 2,
    }


def test_first_kill_ends_the_row_where_that_is_asked():
    row = fill_row(FAULTS["norm_epsilon"], MatrixSettings.of_cases(3, stops_at_first=True))
    assert row.first is not None
    assert row.location is None
    assert sum(row.examples.values()) < 15


def test_patience_looks_at_more_where_nothing_was_seen():
    name = next(iter(NO_OP_FAULTS))
    settings = MatrixSettings(
        num_examples=(("symbolic schedules", 4), ("model schedules", 1), ("cases", 1), ("pairs of distributions", 1)),
        patience=3,
    )
    row = fill_row(NO_OP_FAULTS[name], settings)
    assert row.examples["symbolic schedules"] == 12


def test_lane_without_further_examples_is_left(monkeypatch):
    cases = lanes.generated_cases(0, 1)
    monkeypatch.setattr(lanes, "generated_cases", lambda *_: cases)
    settings = MatrixSettings(
        num_examples=(("symbolic schedules", 1), ("model schedules", 1), ("cases", 3), ("pairs of distributions", 1)),
        patience=1,
    )
    row = fill_row(NO_OP_FAULTS[next(iter(NO_OP_FAULTS))], settings)
    assert row.examples["cases"] == len(cases) == 1


QUICK = MatrixSettings.of_cases(1, max_seconds=0.1)
"""The lanes that take the least time come first, so that no model is needed."""


def test_fault_that_no_case_shows_again_is_not_located(monkeypatch):
    monkeypatch.setattr(fill, "_failing_check", lambda *_: None)
    row = fill_row(FAULTS["newest_block_not_released"], QUICK)
    assert row.kills
    assert (row.case, row.place) == (None, None)
    assert row.location is not None
    assert row.location.sentence == "no single case shows it again"


def test_explanation_that_fails_is_told_as_no_location(monkeypatch):
    monkeypatch.setattr(fill, "explain_scenario", Mock(side_effect=ScenarioError("cannot be explained")))
    row = fill_row(FAULTS["newest_block_not_released"], QUICK)
    assert row.case is not None
    assert row.location is not None
    assert (row.location.files, row.location.sentence) == ((), "ScenarioError: cannot be explained")

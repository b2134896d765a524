import sys

import pytest

from oracle.engines.teaching_engine import TeachingEngine
from oracle.explain.pytest_report import case_in, engine_in, explained, locals_of
from oracle.faults import FAULTS


def options(name):
    """No option is given."""
    del name


def test_failure_that_holds_a_case_is_explained_and_the_case_written(symbolic, tmp_path):
    with FAULTS["outputs_lost_on_preemption"].planted():
        text = str(explained([{"scenario": symbolic}], tmp_path / "failures", "tests/test_it.py::test_it[a]", options))
    (path,) = (tmp_path / "failures").iterdir()
    assert path.name == "tests-test-it-py-test-it-a.json"
    assert "blame: scheduler: preemption" in text
    assert f"replay {path}" in text


def test_failure_without_a_case_is_left_alone(tmp_path):
    assert explained([{"number": 3}], tmp_path / "failures", "test", options) is None
    assert not (tmp_path / "failures").exists()


def test_case_that_passes_is_told_with_the_command(symbolic, tmp_path):
    assert "nothing to explain" in str(explained([{"own": symbolic}], tmp_path, "test", options))


def test_innermost_case_counts(schedule, symbolic):
    assert case_in([{"outer": schedule}, {"inner": symbolic}, {}]) is symbolic


def test_engine_is_made_as_the_test_makes_it():
    assert isinstance(engine_in([{"make_engine": TeachingEngine}]), TeachingEngine)
    assert engine_in([{}]) is None


def test_frames_come_outermost_first():
    def inner(place):
        raise ValueError(place)

    with pytest.raises(ValueError, match="7"):
        inner(7)
    try:
        inner(8)
    except ValueError:
        frames = list(locals_of(sys.exc_info()[2]))
    assert frames[-1]["place"] == 8

"""The function for scripts reads the file of known deviations, and hands everything on."""

import json

import pytest

from oracle.contract.check_engine import check_engine
from oracle.contract.outcome import CheckVerdict
from oracle.engines.messages import EngineRun
from oracle.errors import ScenarioError

pytestmark = pytest.mark.without_shape_checks


@pytest.fixture
def report_of(scripted_engine, scripted_referee, scripted_folder, tmp_path):
    """Judges an engine that leaves out outputs, with some deviations known."""

    def judge(known):
        path = tmp_path / "known.json"
        path.write_text(json.dumps(known))
        return check_engine(
            scripted_engine(spoil=lambda _, run: EngineRun(run.outputs[1:], run.witnesses)),
            model=str(scripted_folder),
            known=str(path),
            num_constructions=1,
            num_runs=3,
            checks=("form",),
            open_referee=lambda _folder, _dtype: scripted_referee(),
        )

    return judge


def test_known_failure_is_known_and_counted(report_of):
    report = report_of([{"check": "form", "reason": "waits"}])
    assert {row.verdict for row in report.rows() if row.check == "form"} == {CheckVerdict.KNOWN}
    assert min(report.known.values()) > 0


def test_known_deviation_that_is_not_met_fails(report_of):
    report = report_of(
        [{"check": "form", "reason": "waits"}, {"check": "form", "blame": "nobody", "reason": "is gone"}]
    )
    assert report.verdict is CheckVerdict.FAIL
    assert [deviation.reason for deviation in report.unmet] == ["is gone"]


def test_known_deviation_of_a_check_that_was_not_asked_for_is_not_missed(report_of):
    report = report_of([{"check": "form", "reason": "waits"}, {"check": "ends", "reason": "was not asked for"}])
    assert report.verdict is CheckVerdict.KNOWN
    assert not report.unmet


def test_other_file_is_refused(report_of):
    with pytest.raises(ScenarioError, match="known deviations"):
        report_of(3)

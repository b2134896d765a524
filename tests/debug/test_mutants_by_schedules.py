"""The script on two mutants that are written by hand: one that schedules see, and one that changes nothing."""

import json
import os

import pytest

from debug import mutants_by_schedules as script
from oracle.faults import FAULTS
from oracle.scenario import RequestSpec, Scenario
from oracle.symbolic_check import run_symbolic

pytestmark = pytest.mark.without_shape_checks

if not hasattr(os, "fork"):
    pytest.skip("mutmut needs os.fork, and so does the script", allow_module_level=True)


SCENARIO = Scenario((RequestSpec((0,)),), checkpoint=None, is_symbolic=True)


@pytest.fixture
def folder(tmp_path):
    names = {"refinfer.a.x_f__mutmut_1": 0, "refinfer.a.x_f__mutmut_2": 1, "refinfer.b.x_g__mutmut_1": None}
    (tmp_path / "refinfer").mkdir()
    (tmp_path / "refinfer" / "a.py.meta").write_text(json.dumps({"exit_code_by_key": names}), encoding="utf-8")
    return tmp_path


def test_script_tells_seen_mutants_from_others(folder, monkeypatch, capsys):
    def run_mutant(scenario, mode):
        if os.environ["MUTANT_UNDER_TEST"].endswith("_2"):
            with FAULTS["copy_on_write_left_out"].planted():
                return run_symbolic(scenario, mode)
        return run_symbolic(scenario, mode)

    monkeypatch.setattr(script, "run_symbolic", run_mutant)
    report = folder / "seen.json"
    arguments = ["refinfer.a.*", "--mutants", str(folder), "--schedules", "40", "--json", str(report)]
    assert script.main(arguments) == 0
    seen = json.loads(report.read_text(encoding="utf-8"))
    assert seen["refinfer.a.x_f__mutmut_1"] == script.UNSEEN
    assert 1 <= seen["refinfer.a.x_f__mutmut_2"] <= 40
    assert "2 mutants, 40 schedules each: {'caught': 1, 'unseen': 1}" in capsys.readouterr().out


def test_mutant_on_which_a_check_breaks_is_told(monkeypatch):
    monkeypatch.setattr(script, "run_symbolic", None)
    assert script.outcome_of("refinfer.a.x_f__mutmut_1", [SCENARIO], 5) == script.CRASHED


def test_mutant_that_does_not_end_is_told(monkeypatch):
    def hang(*_):
        while True:
            pass

    monkeypatch.setattr(script, "run_symbolic", hang)
    assert script.outcome_of("refinfer.a.x_f__mutmut_1", [SCENARIO], 1) == script.HUNG


def test_mutants_by_schedules_refuses_patterns_that_name_no_mutant(usage_error, folder):
    line = usage_error(script.main, "nothing.*", "--mutants", str(folder))
    assert f"no mutant in {folder} is named nothing.*; `mutmut run` writes them" in line


def test_mutants_by_schedules_refuses_more_schedules_than_a_status_can_tell(usage_error, folder):
    line = usage_error(script.main, "refinfer.a.*", "--mutants", str(folder), "--schedules", "251")
    assert "--schedules 251 is more than 250" in line


@pytest.mark.parametrize("option", ["--schedules", "--limit"])
def test_mutants_by_schedules_refuses_numbers_below_one(usage_error, option):
    assert f"{option}: 0 is not at least 1" in usage_error(script.main, "refinfer.*", option, "0")

"""`python -m oracle schedules` says pass, vacuous or fail, and writes what `replay` reads."""

import pytest

from oracle.__main__ import main
from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, EXIT_USAGE, EXIT_VACUOUS
from oracle.scenario import Scenario
from refinfer.scheduler import BlockSpace

SYMBOLIC = ["schedules", "--symbolic", "--modes", "continuous"]


def test_schedules_passes(capsys):
    assert main([*SYMBOLIC, "--examples", "5"]) == EXIT_PASS
    assert "preemption" in capsys.readouterr().out


def test_few_schedules_are_vacuous():
    assert main(["schedules", "--symbolic", "--modes", "paged", "--examples", "1"]) == EXIT_VACUOUS


def test_unknown_mode_is_refused():
    assert main(["schedules", "--modes", "x"]) == EXIT_USAGE


def test_a_failure_is_written_and_replayed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(BlockSpace, "_copy_on_write", lambda *_: None)
        arguments = ["--modes", "paged", "--examples", "60", "--failures", str(tmp_path)]
        assert main(["schedules", "--symbolic", *arguments]) == EXIT_FAIL
        path = tmp_path / "schedules-paged.json"
        assert len(Scenario.load(path).requests) <= 2
        assert main(["replay", str(path)]) == EXIT_FAIL
    assert main(["replay", str(path)]) == EXIT_PASS


@pytest.mark.parametrize("manner", [[], ["--plain"]])
def test_schedules_run_on_tiny_models(manner):
    assert main(["schedules", *manner, "--modes", "static", "--examples", "1"]) == EXIT_PASS

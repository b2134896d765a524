"""The commands end with the status that the verdicts ask for, and refuse what they cannot run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oracle import __main__ as command_line
from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.commands import shared
from oracle.errors import LogitsMismatch
from oracle.faults import FAULTS
from oracle.observation import Observation
from oracle.properties import PROPERTIES, Property
from oracle.scenario import RequestSpec, Scenario

PASS, FAIL, USAGE, VACUOUS = 0, 1, 2, 3

SCENARIO = Scenario(requests=(RequestSpec((1, 2, 3), max_tokens=3), RequestSpec((7, 8), max_tokens=2, cuts=(1,))))


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs a command line in an empty folder; gives its exit status, its output and what it said of errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def command(*arguments):
        try:
            status: Any = command_line.main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        output, errors = capsys.readouterr()
        return status, output, errors

    return command


@pytest.fixture
def only(monkeypatch):
    """Puts other properties in the place of the real ones."""

    def replace(*properties):
        monkeypatch.setattr(shared, "PROPERTIES", properties)

    return replace


def holds(case, mode):
    """A property that holds."""
    del case, mode
    return Observation()


def says_nothing(case, mode):
    """A property that is never witnessed."""
    del case, mode
    return Observation(witnessed=False)


def fails_on_two_requests(case, mode):
    """A property that fails on requests of three tokens or more."""
    if len(case.scenario.requests) > 1:
        message = f"{mode}: [bold]{len(case.scenario.requests)}[/] requests"
        raise LogitsMismatch(message)
    return Observation()


def prop(name, check, **settings):
    """A property for a test."""
    return Property(name, "Does it hold?", check, **settings)


def test_check_passes_on_every_real_property(run, tmp_path):
    report = tmp_path / "report.json"
    status, output, _ = run("check", "--examples", 4, "--json", report)
    cells = json.loads(report.read_text(encoding="utf-8"))["cells"]
    assert {cell["failure"] for cell in cells} == {None}
    assert status in (PASS, VACUOUS)  # four cases need not witness everything
    assert "4 cases in" in output
    assert "0 fail" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json"]


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ((holds, holds), PASS),
        ((holds, fails_on_two_requests), FAIL),
        ((fails_on_two_requests, says_nothing), FAIL),
        ((holds, says_nothing), VACUOUS),
    ],
    ids=["all pass", "one fails", "one fails and one is vacuous", "one is vacuous"],
)
def test_check_ends_with_the_status_of_its_worst_verdict(run, only, checks, status):
    only(*(prop(f"property_{index}", check) for index, check in enumerate(checks)))
    assert run("check", "--examples", 10, "--modes", "static")[0] == status


def test_check_writes_failures_that_replay(run, only, tmp_path):
    only(prop("bad", fails_on_two_requests))
    status, output, _ = run("check", "--examples", 10, "--modes", "static", "--failures", "kept")
    path = tmp_path / "kept" / "bad-static.json"
    assert status == FAIL
    assert "FAIL bad × static: static: [bold]2[/] requests" in output
    assert f"run it again: python -m oracle replay {path.relative_to(tmp_path)}" in output
    status, output, _ = run("replay", path)
    assert status == FAIL
    assert "bad × static: static: [bold]2[/] requests" in output


def test_check_runs_the_modes_it_is_given(run, only, tmp_path):
    only(prop("good", holds))
    report = tmp_path / "report.json"
    run("check", "--examples", 2, "--modes", "static, none", "--json", report)
    cells = json.loads(report.read_text(encoding="utf-8"))["cells"]
    assert [cell["mode"] for cell in cells] == ["static", "none"]


def test_check_stops_when_time_is_up(run, only):
    only(prop("good", holds))
    status, output, _ = run("check", "--examples", 5, "--time-budget", 0)
    assert status == VACUOUS
    assert "0 cases in" in output


def test_interrupted_check_still_reports(run, only):
    calls: list[None] = []

    def interrupted(case, mode):
        del case, mode
        calls.append(None)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return Observation()

    only(prop("good", interrupted, modes=("none",)))
    status, output, _ = run("check", "--examples", 10)
    assert "3 cases in" in output
    assert "(interrupted)" in output
    assert status == 130


def test_same_seed_prints_the_same_figures(run, tmp_path):
    tables = []
    for name in ("first", "second"):
        report = tmp_path / f"{name}.json"
        run("check", "--examples", 3, "--seed", 4, "--modes", "none", "--json", report)
        tables.append(json.loads(report.read_text(encoding="utf-8"))["cells"])
    assert tables[0] == tables[1]


def test_check_on_a_given_checkpoint_changes_nothing_in_it(run, tmp_path):
    folder = cached_checkpoint(CheckpointSpec(seed=1))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = tmp_path / "report.json"
    status, output, _ = run("check", "--model", folder, "--examples", 2, "--json", report)
    cells = json.loads(report.read_text(encoding="utf-8"))["cells"]
    assert status in (PASS, VACUOUS)
    assert "0 fail" in output
    assert "broken_checkpoints" not in {cell["property"] for cell in cells}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--modes", "paged"], "mode 'paged' is unknown; choose among none, static, continuous"),
        (["check", "--modes", ""], "mode '' is unknown"),
        (["check", "--model", "./nowhere"], "nowhere is not a folder"),
        (["check", "--examples", "0"], "0 is not at least 1"),
        (["check", "--examples", "many"], "many"),
        (["check", "--profile", "huge"], "huge"),
        (["check", "--time-budget", "soon"], "soon"),
        (["replay", "nowhere.json"], "nowhere.json cannot be read"),
        (["replay", "."], "cannot be read"),
        (["replay"], "case"),
        (["conjure"], "conjure"),
        ([], "COMMAND"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_refuses_what_it_cannot_run(run, arguments, message):
    status, _, errors = run(*arguments)
    assert status == USAGE
    assert message in " ".join(errors.split())
    assert "Traceback" not in errors


@pytest.mark.parametrize("content", ["", "[]", '{"version": 99, "requests": [], "checkpoint": null}'])
def test_replay_refuses_a_file_that_holds_no_scenario(run, tmp_path, content):
    path = tmp_path / "case.json"
    path.write_text(content, encoding="utf-8")
    status, _, errors = run("replay", path)
    assert status == USAGE
    assert "scenario" in errors


def test_check_refuses_a_report_that_cannot_be_written(run, only, tmp_path):
    only(prop("good", holds))
    status, _, errors = run("check", "--examples", 1, "--json", tmp_path / "no folder" / "report.json")
    assert status == USAGE
    assert "report.json" in errors


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["replay", "--help"], ["properties", "--help"]])
def test_help_is_given(run, arguments):
    status, output, _ = run(*arguments)
    assert status == 0
    assert output.startswith("usage: python -m oracle")


def saved(scenario, folder):
    """A scenario in a file."""
    path = folder / "case.json"
    path.write_text(scenario.to_json(), encoding="utf-8")
    return path


def test_replay_passes_a_right_case_on_every_property_of_its_dtype(run, tmp_path):
    status, output, _ = run("replay", saved(SCENARIO, tmp_path))
    assert status == PASS
    places = {line.split(maxsplit=1)[1] for line in output.splitlines()}
    assert places == {f"{prop.name} × {mode}" for prop in PROPERTIES if "float32" in prop.dtypes for mode in prop.modes}


def test_replay_fails_on_a_case_that_catches_a_fault(run, tmp_path):
    with FAULTS["causal_mask_one_ahead"].planted():
        status, output, _ = run("replay", saved(SCENARIO, tmp_path))
    assert status == FAIL
    assert "fail     reference_bits × none: none, request 0, all rows: first divergence in row 0" in output


def test_replay_fails_on_a_case_that_makes_the_subject_raise(run, only, tmp_path):
    def raises(case, mode):
        del case
        raise AttributeError(mode)

    only(prop("bad", raises, modes=("none",)), prop("good", holds, modes=("none",)))
    status, output, _ = run("replay", saved(SCENARIO, tmp_path))
    assert status == FAIL
    assert output.splitlines() == ["fail     bad × none: AttributeError: none", "pass     good × none"]


def test_replay_tells_what_a_case_does_not_witness(run, only, tmp_path):
    only(prop("empty", says_nothing, modes=("none",)))
    status, output, _ = run("replay", saved(SCENARIO, tmp_path))
    assert (status, output.strip()) == (PASS, "vacuous  empty × none")


def test_replay_needs_a_model_for_a_case_that_generates_none(run, only, tmp_path):
    only(prop("good", holds, modes=("none",)), prop("breaks", holds, modes=("none",), is_generated_only=True))
    path = saved(Scenario(requests=SCENARIO.requests, checkpoint=None), tmp_path)
    status, _, errors = run("replay", path)
    assert status == USAGE
    assert "--model" in errors
    status, output, _ = run("replay", path, "--model", cached_checkpoint(CheckpointSpec()))
    assert (status, output.strip()) == (PASS, "pass     good × none")


def test_replay_refuses_a_model_for_a_case_that_generates_its_own(run, tmp_path):
    status, _, errors = run("replay", saved(SCENARIO, tmp_path), "--model", tmp_path)
    assert status == USAGE
    assert "leave --model away" in errors


def test_properties_lists_every_property_with_its_question(run):
    status, output, _ = run("properties")
    assert status == PASS
    text = " ".join(output.split())
    for prop in PROPERTIES:
        assert f"{prop.name} {prop.question}" in text


def test_module_runs_as_a_program():
    root = Path(command_line.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "oracle", "properties"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "reference_bits" in done.stdout
    assert done.stderr == ""

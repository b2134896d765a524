"""The faults are listed, planted one by one, and what gets past every way of looking is an alarm."""

import json

import pytest

from oracle.commands import faults
from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, EXIT_USAGE
from oracle.faults import FAULTS, NO_OP_FAULTS, Area, Fault
from oracle.faults.registry import Replacement
from refinfer.numerics.plain import PlainNumerics

pytestmark = pytest.mark.without_shape_checks

NO_OP = Fault("no_op", Area.MODEL, "nothing is wrong", (Replacement(PlainNumerics, "silu", PlainNumerics.silu),))


@pytest.fixture
def _no_hunt(monkeypatch):
    """Fails the test as soon as a fault would be planted."""
    monkeypatch.setattr(faults, "fill_matrix", lambda names, *_, **__: pytest.fail(f"{names} are planted"))


@pytest.mark.usefixtures("_no_hunt")
@pytest.mark.parametrize(("options", "known"), [((), FAULTS), (("--no-ops",), NO_OP_FAULTS)], ids=["faults", "no-ops"])
def test_list_names_every_fault_and_plants_none(run, options, known):
    status, output, _ = run("faults", "--list", *options)
    assert status == EXIT_PASS
    assert output.splitlines() == [f"{fault.name} ({fault.area}): {fault.bug}" for fault in known.values()]


@pytest.mark.usefixtures("_no_hunt")
def test_list_keeps_to_the_faults_it_is_given(run):
    names = ["norm_epsilon", "ties_to_highest_id"]
    status, output, _ = run("faults", "--list", *names)
    assert status == EXIT_PASS
    assert [line.split()[0] for line in output.splitlines()] == names


@pytest.mark.usefixtures("_no_hunt")
@pytest.mark.parametrize("arguments", [(), ("--list",), ("--no-ops",)], ids=["planted", "listed", "none"])
def test_faults_refuses_an_unknown_name_before_anything_is_planted(run, arguments):
    status, output, errors = run("faults", "no_such", "norm_epsilon", *arguments)
    assert status == EXIT_USAGE
    assert output == ""
    assert "fault 'no_such' is unknown; `python -m oracle faults --list` names them all" in errors


def test_caught_faults_are_shown_with_what_sees_them_and_where_they_sit(run, tmp_path):
    """The matrix is written too, and drawn."""
    files = tmp_path / "matrix.json", tmp_path / "matrix.svg"
    names = "ties_to_highest_id", "wrong_guess_emitted"
    status, output, _ = run(
        "faults", *names, "--examples", 6, "--processes", 1, "--json", files[0], "--picture", files[1]
    )
    assert status == EXIT_PASS
    lines = output.splitlines()
    for name in names:
        (line,) = (line for line in lines if line.startswith(f"{name} ("))
        assert "caught in " in line
        assert "; located in refinfer/" in line
    assert " 50 % ties_to_highest_id" in lines
    assert "2 of 2 faults caught" in lines
    assert [row["fault"] for row in json.loads(files[0].read_text(encoding="utf-8"))["rows"]] == list(names)
    assert "2 of 2 caught" in files[1].read_text(encoding="utf-8")


def test_first_kill_ends_a_row_where_that_is_asked(run):
    status, output, _ = run("faults", "whole_distribution_replaces", "--first", "--examples", 2)
    assert status == EXIT_PASS
    assert "whole_distribution_replaces (law): caught in " in output
    assert "located" not in output


def test_fault_that_is_not_caught_fails_the_run(run, monkeypatch):
    monkeypatch.setitem(FAULTS, NO_OP.name, NO_OP)
    status, output, _ = run("faults", "no_op", "norm_epsilon", "--examples", 1, "--first", "--processes", 1)
    assert status == EXIT_FAIL
    assert "no_op (model): NOT CAUGHT in " in output
    assert "1 of 2 faults caught" in output
    assert "not caught: no_op" in output


def test_faults_that_are_none_raise_no_alarm(run):
    name = next(iter(NO_OP_FAULTS))
    status, output, _ = run("faults", "--no-ops", name, "--examples", 1)
    assert status == EXIT_PASS
    assert f"{name} ({NO_OP_FAULTS[name].area}): no alarm in 15 symbolic schedules, 3 model schedules" in output


def test_alarm_about_a_fault_that_is_none_fails_the_run(run, monkeypatch):
    monkeypatch.setitem(NO_OP_FAULTS, "norm_epsilon", FAULTS["norm_epsilon"])
    status, output, _ = run("faults", "--no-ops", "norm_epsilon", "--examples", 1, "--first")
    assert status == EXIT_FAIL
    assert "norm_epsilon (model): caught in " in output

"""The faults are listed, planted one by one, and what gets past the properties is an alarm."""

import pytest

from oracle.commands import faults
from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, EXIT_USAGE
from oracle.faults import FAULTS, Area, Fault
from oracle.faults.registry import Replacement
from refinfer.numerics.plain import PlainNumerics

pytestmark = pytest.mark.without_shape_checks

NO_OP = Fault("no_op", Area.MODEL, "nothing is wrong", (Replacement(PlainNumerics, "silu", PlainNumerics.silu),))


@pytest.fixture
def _no_hunt(monkeypatch):
    """Fails the test as soon as a fault would be planted."""
    monkeypatch.setattr(faults, "hunt", lambda fault, _: pytest.fail(f"{fault.name} is planted"))


@pytest.mark.usefixtures("_no_hunt")
def test_list_names_every_fault_and_plants_none(run):
    status, output, _ = run("faults", "--list")
    assert status == EXIT_PASS
    assert output.splitlines() == [f"{fault.name} ({fault.area}): {fault.bug}" for fault in FAULTS.values()]


@pytest.mark.usefixtures("_no_hunt")
def test_list_keeps_to_the_faults_it_is_given(run):
    names = ["norm_epsilon", "ties_to_highest_id"]
    status, output, _ = run("faults", "--list", *names)
    assert status == EXIT_PASS
    assert [line.split()[0] for line in output.splitlines()] == names


@pytest.mark.usefixtures("_no_hunt")
@pytest.mark.parametrize("arguments", [(), ("--list",)], ids=["planted", "listed"])
def test_faults_refuses_an_unknown_name_before_anything_is_planted(run, arguments):
    status, output, errors = run("faults", "norm_epsilon", "no_such", *arguments)
    assert status == EXIT_USAGE
    assert output == ""
    assert "fault 'no_such' is unknown; `python -m oracle faults --list` names them all" in errors


def test_caught_fault_is_shown_with_what_caught_it(run):
    status, output, _ = run("faults", "ties_to_highest_id", "--examples", 60)
    assert status == EXIT_PASS
    first, second, last = output.splitlines()
    assert first.startswith("ties_to_highest_id (")
    assert second.startswith("  caught by ")
    assert last == "1 of 1 faults caught"


def test_fault_that_is_not_caught_fails_the_run(run, monkeypatch):
    monkeypatch.setattr(faults, "FAULTS", {NO_OP.name: NO_OP, "norm_epsilon": FAULTS["norm_epsilon"]})
    status, output, _ = run("faults", "--examples", 1)
    assert status == EXIT_FAIL
    assert "NOT CAUGHT: fault no_op (nothing is wrong) passed" in output
    assert output.splitlines()[-1] == "1 of 2 faults caught"


@pytest.mark.usefixtures("_no_hunt")
def test_fault_of_the_law_is_caught_by_the_law(run):
    status, output, _ = run("faults", "whole_distribution_replaces", "--examples", 5)
    assert status == EXIT_PASS
    first, second, last = output.splitlines()
    assert first.startswith("whole_distribution_replaces (law)")
    assert second.startswith("  caught by the law, pair 0: the law of the tokens is ")
    assert last == "1 of 1 faults caught"


@pytest.mark.usefixtures("_no_hunt")
def test_fault_of_the_law_that_is_not_caught_fails_the_run(run, monkeypatch):
    harmless = Fault("no_op", Area.LAW, "nothing is wrong", NO_OP.replacements)
    monkeypatch.setattr(faults, "FAULTS", {harmless.name: harmless})
    monkeypatch.setattr(faults, "LAW_FAULTS", (harmless.name,))
    status, output, _ = run("faults", "--examples", 5)
    assert status == EXIT_FAIL
    assert "NOT CAUGHT: fault no_op (nothing is wrong) passed 5 pairs of distributions unseen" in output


def test_fault_of_guesses_is_caught_by_schedules(run):
    status, output, _ = run("faults", "wrong_guess_emitted", "--examples", 5)
    assert status == EXIT_PASS
    assert "caught by schedules, answers in paged, in schedule " in output

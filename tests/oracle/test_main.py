"""The command line takes the commands, says what they are, and refuses what none of them can run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from oracle import __main__ as command_line
from oracle.commands.shared import EXIT_USAGE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--modes", "tiled"], "mode 'tiled' is unknown; choose among none, static, continuous"),
        (["check", "--modes", ""], "mode '' is unknown"),
        (["check", "--model", "./nowhere"], "nowhere is not a folder"),
        (["check", "--examples", "0"], "0 is not at least 1"),
        (["check", "--examples", "many"], "many"),
        (["check", "--profile", "huge"], "huge"),
        (["check", "--time-budget", "soon"], "soon"),
        (["replay", "nowhere.json"], "nowhere.json cannot be read"),
        (["replay", "."], "cannot be read"),
        (["check", "--threads", "0"], "0 is not at least 1"),
        (["faults", "--examples", "0"], "0 is not at least 1"),
        (["digests", "one.txt"], "other"),
        (["replay"], "case"),
        (["conjure"], "conjure"),
        ([], "COMMAND"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_refuses_what_it_cannot_run(run, arguments, message):
    status, _, errors = run(*arguments)
    assert status == EXIT_USAGE
    assert message in " ".join(errors.split())
    assert "Traceback" not in errors


COMMANDS = ["check", "schedules", "replay", "engines", "faults", "digests", "properties"]


def test_module_names_its_commands_in_order():
    docstring = command_line.__doc__ or ""
    assert re.findall(r"`(?:python -m oracle )?(\w+)`", docstring) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_command_and_each_has_its_own(run, command):
    status, output, _ = run("--help")
    assert status == 0
    assert command in [line.split()[0] for line in output.splitlines() if line.startswith("    ")]
    status, output, _ = run(command, "--help")
    assert status == 0
    assert output.startswith(f"usage: python -m oracle {command} ")


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

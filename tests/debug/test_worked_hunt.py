"""The hunt in the notes can be repeated: five commands, each on what the one before has left, print what is quoted."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from debug import compare_runs, first_divergence, show_step
from oracle.__main__ import main as oracle_main

pytestmark = pytest.mark.without_shape_checks

NOTE = Path(__file__).parents[2] / "notes" / "15-a-worked-hunt.md"
LEFT_OUT = "…"
MAIN_BY_START = {
    "python -m oracle": oracle_main,
    "python debug/compare_runs.py": compare_runs.main,
    "python debug/show_step.py": show_step.main,
    "python debug/first_divergence.py": first_divergence.main,
}
FAULT = ["--fault", "rope_scaling_ignored"]


class Stage(NamedTuple):
    """A command of the note, and the lines that it quotes."""

    command: str
    quoted: list[str]


def stages():
    """The commands of the note with their quotes, in order."""
    text = NOTE.read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.+?)\n```\n\n```text\n(.+?)\n```", text, re.DOTALL)
    return [Stage(command, [line for line in quoted.splitlines() if line != LEFT_OUT]) for command, quoted in blocks]


def squeezed(line):
    """A line with one blank for each run of them."""
    return " ".join(line.split())


def pattern_of(quoted):
    """What a quoted line stands for: its own words, and anything where something is left out."""
    parts = [re.escape(part.strip()) for part in squeezed(quoted).split(LEFT_OUT)]
    return re.compile(r"\s*.*?\s*".join(parts))


def is_quoted_rightly(quoted, printed):
    """Whether the quoted lines are among the printed ones, in order, each from its start to its end."""
    rest = iter(printed)
    return all(any(pattern_of(line).fullmatch(squeezed(own)) for own in rest) for line in map(squeezed, quoted))


def run(command, capsys):
    """Runs a command of the note in this process; gives its status and its lines."""
    start = next(start for start in MAIN_BY_START if command.startswith(start))
    status = MAIN_BY_START[start](shlex.split(command.removeprefix(start)))
    captured = capsys.readouterr()
    assert not captured.err
    return status, captured.out.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the hunt takes place: the commands run one after another in it."""
    return tmp_path_factory.mktemp("hunt")


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    """Runs a test there, in a terminal of a hundred columns, and leaves the number of threads as it was."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


def test_hunt_is_five_commands_that_quote_enough():
    found = stages()
    assert len(found) == 5
    assert all(shlex.split(stage.command)[-2:] == FAULT for stage in found)
    assert all(len(stage.quoted) >= 3 for stage in found)
    words = [part for stage in found for line in stage.quoted for part in line.split(LEFT_OUT)]
    assert all(len(stage.command) + sum(map(len, stage.quoted)) > 200 for stage in found)
    assert sum(map(len, words)) > 2000


@pytest.mark.parametrize("place", range(5))
def test_command_prints_what_the_note_quotes(place, folder, capsys):
    if place and not (folder / "oracle-failures").exists():
        run(stages()[0].command, capsys)  # a test that is run by itself begins at the beginning too
    stage = stages()[place]
    status, printed = run(stage.command, capsys)
    assert status == (0 if stage.command.split()[1] in ("debug/compare_runs.py", "debug/show_step.py") else 1)
    assert is_quoted_rightly(stage.quoted, printed), "\n".join(printed)


def test_nothing_is_found_where_nothing_is_planted(folder, capsys):
    if not (folder / "oracle-failures").exists():
        run(stages()[0].command, capsys)
    case = folder / "oracle-failures" / "reference_logits-paged.json"
    assert '"rope_type": "linear"' in case.read_text(encoding="utf-8")
    for stage in stages()[1:]:
        words = shlex.split(stage.command)[:-2]
        status, printed = run(shlex.join(words), capsys)
        assert status == 0, "\n".join(printed)
        assert not is_quoted_rightly(stage.quoted, printed)


@pytest.mark.parametrize(
    ("quoted", "printed", "is_right"),
    [
        (["a  b", "c …"], ["x", "a b", "y", "c 1.5 s"], True),
        (["c …", "a b"], ["a b", "c 1.5 s"], False),
        (["a b"], ["a b c"], False),
        (["a …, b …"], ["a 1, b 2"], True),
        (["a …, b 3"], ["a 1, b 2"], False),
        (["1.3…"], ["1.25"], False),
    ],
)
def test_quotes_are_held_to_order_and_to_whole_lines(quoted, printed, is_right):
    assert is_quoted_rightly(quoted, printed) == is_right

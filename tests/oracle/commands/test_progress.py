"""Long work shows how far it is, also where its output is no terminal."""

from io import StringIO

import pytest
from rich.console import Console

from oracle.commands.progress import shown_progress


def shown(steps, **options):
    """What a console shows of some steps, each what is done of 20 and what comes next."""
    file = StringIO()
    console = Console(file=file, width=40, **options)
    with shown_progress(console, "cases", 20) as tell:
        for done, words in steps:
            tell(done, words)
    return file.getvalue()


def test_no_terminal_gets_a_line_for_each_tenth():
    lines = shown([(done, None) for done in range(21)], force_terminal=False).splitlines()
    assert lines == [f"{percent:3} % cases" for percent in range(10, 101, 10)]


def test_line_says_what_comes_next():
    assert shown([(1, "a"), (10, "[b]it"), (11, "c")], force_terminal=False) == " 50 % [b]it\n"


def test_line_is_no_longer_than_the_console():
    (line,) = shown([(20, "x" * 99)], force_terminal=False).splitlines()
    assert len(line) == 40


@pytest.mark.parametrize("words", [None, "[b]it"])
def test_terminal_gets_a_bar(words):
    assert (words or "cases") in shown([(5, words)], force_terminal=True)

"""A terminal is protected from what a model writes; a pipe gets it as it is."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinfer.cli.terminal import escaped, say, write


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def stdout(monkeypatch):
    """Standard output of a kind and an encoding, with what was written to it."""

    def replace(kind, encoding="utf-8"):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", kind(written, encoding=encoding))
        return written

    return replace


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb", "a\\rb"),
        ("\x9b1A", "\\x9b1A"),
        ("\x00\x07\x7f", "\\x00\\x07\\x7f"),
        ("abc\u202edef", "abc\\u202edef"),
        ("line\n\ttab", "line\n\ttab"),
        ("déjà 日本 👩\u200d👧 \ufffd", "déjà 日本 👩\u200d👧 \ufffd"),
    ],
)
def test_escaped_shows_control_characters_only(text, shown):
    assert escaped(text) == shown


@given(st.text())
def test_escaped_text_never_controls_a_terminal(text):
    assert all(
        character >= " " and not "\x7f" <= character <= "\x9f" for character in escaped(text) if character not in "\n\t"
    )


def test_write_escapes_on_a_terminal(stdout):
    written = stdout(Terminal)
    write("a\x1bé")
    assert written.getvalue() == "a\\x1bé".encode()


def test_write_leaves_a_pipe_its_bytes(stdout):
    written = stdout(io.TextIOWrapper)
    write("a\x1bé")
    assert written.getvalue() == "a\x1bé".encode()


def test_write_goes_on_where_the_encoding_lacks_a_character(stdout):
    written = stdout(io.TextIOWrapper, "ascii")
    write("é🙂")
    assert written.getvalue() == rb"\xe9\U0001f642"


def test_say_is_one_line_on_standard_error(capsys):
    say("first\n  second\x1b\n")
    assert capsys.readouterr() == ("", "first second\\x1b\n")

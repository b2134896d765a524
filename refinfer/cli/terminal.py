"""What a terminal is shown, and what a pipe is given."""

import io
import sys
import unicodedata

_LET_THROUGH = "\n\t"

_BIDIRECTIONAL = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that change the direction of what follows, so that a line can show other than it reads."""


def escaped(text: str) -> str:
    r"""Shows control characters as `\x1b` and the like, so that a model cannot move the cursor or change colours.

    Line breaks and tabs stay what they are.
    """
    return "".join(_shown(character) for character in text)


def write(text: str) -> None:
    """Gives text to standard output at once: escaped on a terminal, as it is in a pipe or a file."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")  # an encoding without the character is no reason to stop
    stream.write(escaped(text) if stream.isatty() else text)
    stream.flush()


def say(text: str) -> None:
    """Writes one line for the user, not for the next program, to standard error."""
    sys.stderr.write(f"{escaped(' '.join(text.split()))}\n")
    sys.stderr.flush()


def _shown(character: str) -> str:
    is_control = unicodedata.category(character) == "Cc" and character not in _LET_THROUGH
    if is_control or character in _BIDIRECTIONAL:
        return character.encode("unicode_escape").decode("ascii")
    return character

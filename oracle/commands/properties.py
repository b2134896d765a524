"""`python -m oracle properties`: lists what must hold."""

import argparse

from rich.console import Console

from oracle.commands.shared import EXIT_PASS, chosen_properties


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to a command line."""
    properties = commands.add_parser("properties", help="list what must hold")
    properties.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:  # noqa: ARG001 - every command has both
    """Runs the command and gives its exit status."""
    for prop in chosen_properties(None):
        console.print(f"[bold]{prop.name:22}[/] {prop.question}", highlight=False)
        console.print(
            f"{'':22} modes {', '.join(prop.modes)}; dtypes {', '.join(prop.dtypes)}", style="dim", highlight=False
        )
    return EXIT_PASS

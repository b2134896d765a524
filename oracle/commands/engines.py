"""`python -m oracle engines`: lists the known engines, and installs one of them."""

import argparse

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oracle.commands.shared import EXIT_PASS
from oracle.engines.environments import environment_state
from oracle.engines.installation import install_engine
from oracle.engines.registry import RECIPES, EngineRecipe, find_recipe

OTHERS = (
    "Any other engine is named by its adapter, MODULE:ATTRIBUTE, "
    "and a server that speaks OpenAI's protocol by its address, http://HOST:PORT."
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to a command line."""
    engines = commands.add_parser("engines", help="list the engines that can be put in the dock, or install one")
    engines.set_defaults(command=run_list)
    actions = engines.add_subparsers(metavar="ACTION")
    listing = actions.add_parser("list", help="say what each is and whether it is installed (what happens by default)")
    listing.set_defaults(command=run_list)
    installing = actions.add_parser("install", help="make an environment of its own for one of them")
    installing.add_argument("name", metavar="NAME", help="as `python -m oracle engines list` has it")
    installing.set_defaults(command=run_install)


def run_list(options: argparse.Namespace, console: Console) -> int:  # noqa: ARG001 - every command has both
    """Lists the known engines and gives the exit status."""
    table = Table(box=None, pad_edge=False)
    for heading, can_wrap in (("name", False), ("what it is", True), ("where it runs", False), ("", True)):
        table.add_column(heading, no_wrap=not can_wrap)
    for recipe in RECIPES:
        where = "this process" if recipe.runs_here else "own process"
        table.add_row(*map(escape, (recipe.name, recipe.summary, where, _presence(recipe))))
    console.print(table)
    console.print(OTHERS, style="dim", markup=False, highlight=False)
    return EXIT_PASS


def run_install(options: argparse.Namespace, console: Console) -> int:
    """Installs one engine and gives the exit status."""
    install_engine(find_recipe(options.name), console=console)
    return EXIT_PASS


def _presence(recipe: EngineRecipe) -> str:
    return "nothing to install" if recipe.runs_here else str(environment_state(recipe))

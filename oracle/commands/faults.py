"""`python -m oracle faults`: plants each bug in turn, and shows what catches it."""

import argparse

from rich.console import Console
from rich.markup import escape

from oracle.check import CheckSettings
from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, pin_threads, positive
from oracle.errors import FaultNotCaught, OracleError
from oracle.faults import FAULTS, LAW_FAULTS, SCHEDULE_FAULTS, Fault
from oracle.faults.hunt import hunt
from oracle.faults.schedule_hunt import hunt_law, hunt_schedules
from oracle.strategies import scenarios
from oracle.subjects import MODES

SCHEDULES_PER_CASE = 10
"""A schedule on the symbolic model takes hundredths of a second."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to a command line."""
    faults = commands.add_parser("faults", help="plant each bug in turn, and show what catches it")
    faults.add_argument("names", nargs="*", metavar="NAME", help="which faults (default: all)")
    faults.add_argument("--list", action="store_true", help="say what each fault is, and plant none")
    faults.add_argument("--examples", type=positive, default=120, help="most cases for each (default: %(default)s)")
    faults.add_argument("--seed", type=int, default=0, help="the same seed draws the same cases (default: %(default)s)")
    faults.add_argument("--shrink", action="store_true", help="search for the smallest case as well")
    faults.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status."""
    unknown = [name for name in options.names if name not in FAULTS]
    if unknown:
        message = f"fault {unknown[0]!r} is unknown; `python -m oracle faults --list` names them all"
        raise OracleError(message, name=unknown[0])
    pin_threads(None)
    chosen = [FAULTS[name] for name in options.names] or list(FAULTS.values())
    check_settings = CheckSettings(
        modes=MODES,
        strategy=scenarios(),
        folder=None,
        num_examples=options.examples,
        seed=options.seed,
        shrink=options.shrink,
        stop_at_failure=True,
    )
    num_caught = 0
    for fault in chosen:
        console.print(f"[bold]{fault.name}[/] ({fault.area}): {escape(fault.bug)}", highlight=False, soft_wrap=True)
        if options.list:
            continue
        try:
            line = _hunted(fault, check_settings)
        except FaultNotCaught as error:
            console.print(f"  NOT CAUGHT: {escape(str(error))}", style="bold red", highlight=False, soft_wrap=True)
            continue
        num_caught += 1
        console.print(f"  caught by {escape(line)}", style="green", highlight=False, soft_wrap=True)
    if options.list:
        return EXIT_PASS
    console.print(f"{num_caught} of {len(chosen)} faults caught", style="bold", highlight=False)
    return EXIT_PASS if num_caught == len(chosen) else EXIT_FAIL


def _hunted(fault: Fault, check_settings: CheckSettings) -> str:
    """Gives what caught a fault, in words.

    Raises:
        FaultNotCaught: Nothing did.
    """
    num_examples, seed = check_settings.num_examples, check_settings.seed
    if fault.name in SCHEDULE_FAULTS:
        seen = hunt_schedules(fault, num_schedules=SCHEDULES_PER_CASE * num_examples, seed=seed)
        return f"schedules, {seen.way}, in schedule {seen.num_schedules}"
    if fault.name in LAW_FAULTS:
        return f"the law, {hunt_law(fault, num_cases=num_examples, seed=seed)}"
    catch = hunt(fault, check_settings)
    return f"{catch.property_name} × {catch.mode} in case {catch.num_cases}, {catch.size}"

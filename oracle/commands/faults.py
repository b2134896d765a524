"""`python -m oracle faults`: plants each bug in turn, and shows which way of looking sees it, how fast, and where."""

import argparse
from itertools import count

from rich.console import Console

from oracle.commands.progress import shown_progress
from oracle.commands.shared import (
    EXIT_FAIL,
    EXIT_PASS,
    known_fault,
    output_file,
    pin_threads,
    positive,
    usual_num_processes,
)
from oracle.faults import FAULTS, NO_OP_FAULTS
from oracle.matrix.fill import MatrixSettings
from oracle.matrix.kills import FaultRow
from oracle.matrix.picture import write_picture
from oracle.matrix.run import fill_matrix
from oracle.matrix.show import show_matrix, show_row


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to a command line."""
    faults = commands.add_parser("faults", help="plant each bug in turn, and show what sees it: the kill matrix")
    faults.add_argument("names", nargs="*", metavar="NAME", help="which faults (default: all)")
    faults.add_argument("--list", action="store_true", help="say what each fault is, and plant none")
    faults.add_argument("--no-ops", action="store_true", help="those that are none instead, where any alarm is false")
    faults.add_argument("--first", action="store_true", help="stop at the first way that sees a fault; locate nothing")
    faults.add_argument(
        "--examples",
        type=positive,
        default=20,
        metavar="N",
        help="N cases for each fault, 15 N symbolic schedules and 3 N on models; ten times as many where nothing "
        "sees it (default: %(default)s)",
    )
    faults.add_argument("--seed", type=int, default=0, help="the same seed draws the same cases (default: %(default)s)")
    faults.add_argument("--processes", type=positive, metavar="N", help="rows are shared out among so many")
    faults.add_argument("--json", type=output_file, metavar="FILE", help="write the matrix")
    faults.add_argument("--picture", type=output_file, metavar="FILE", help="draw it as SVG")
    faults.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status."""
    known = NO_OP_FAULTS if options.no_ops else FAULTS
    faults = [known_fault(name, known) for name in options.names or known]
    names = [fault.name for fault in faults]
    if options.list:
        for fault in faults:
            line = f"{fault.name} ({fault.area}): {fault.bug}"
            console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
        return EXIT_PASS
    pin_threads(None)
    settings = MatrixSettings.of_cases(
        options.examples, seed=options.seed, patience=1 if options.no_ops else 10, stops_at_first=options.first
    )
    done = count(1)
    with shown_progress(console, "faults", len(names)) as tell:

        def on_row(row: FaultRow) -> None:
            tell(next(done), row.fault)
            show_row(console, row, is_none=options.no_ops)

        num_processes = min(len(names), options.processes or usual_num_processes(None, None))
        matrix = fill_matrix(names, settings, num_processes=num_processes, on_row=on_row)
    show_matrix(console, matrix)
    if options.json is not None:
        matrix.save(options.json)
    if options.picture is not None:
        write_picture(matrix, options.picture)
    is_seen = [row.first is not None for row in matrix.rows]
    is_right = not any(is_seen) if options.no_ops else all(is_seen)
    return EXIT_PASS if is_right else EXIT_FAIL

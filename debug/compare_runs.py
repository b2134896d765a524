"""Runs a case twice and shows where the two runs part: two cases, two modes, or with and without a planted bug.

Reach for it when two ways of running should agree and do not, or when you want to know how far a change reaches: it
names the first step, request, position and module, and says of each request how much is equal.

    python debug/compare_runs.py oracle-failures/CASE.json --modes paged,continuous
    python debug/compare_runs.py oracle-failures/CASE.json OTHER.json --picture differences.svg
    python debug/compare_runs.py oracle-failures/CASE.json --fault rope_scaling_ignored

With `--fault` and one mode the second run has the bug and the first has not; with two modes, or two cases, both have.
Equal means every bit; near, that the difference is within 32 units in the last place of the largest value.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from functools import reduce

from rich.console import Console
from rich.table import Table

from oracle.commands.shared import output_file
from oracle.errors import ScenarioError
from oracle.inspection.block_watch import sample_name
from oracle.inspection.case_file import load_case, named_in
from oracle.inspection.likeness import Likeness, larger
from oracle.inspection.picture import heat_picture
from oracle.inspection.run_compare import compare_runs
from oracle.inspection.run_comparison import Parting, RunComparison, SampleComparison
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, parser_of, run_script, save_picture, say, table_of
from oracle.inspection.watched import WatchedCase, watch

EXAMPLE = "python debug/compare_runs.py oracle-failures/schedules-paged.json --modes paged,continuous"

SIGNS = {Likeness.BITS: ".", Likeness.NEAR: "~", Likeness.OTHER: "#"}
NOT_COMPARED = " "
POSITIONS_IN_A_LINE = 80


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = parser_of("Shows where two runs part, and how much of them is equal.", EXAMPLE)
    parser.add_argument("other", nargs="?", help="another case, to be held against the first")
    parser.add_argument(
        "--modes", default="paged", metavar="A,B", help="one mode, or two for one case (default: paged)"
    )
    parser.add_argument("--fault", metavar="NAME", help="plant a bug: in the second run, or in both if those differ")
    parser.add_argument(
        "--picture", type=output_file, metavar="FILE", help="draw the differences, position × request, as SVG"
    )
    return run_script(_run, parser, arguments)


def _run(options: argparse.Namespace, console: Console) -> int:
    one, other = _watch_both(options)
    found = compare_runs(one, other)
    names = [one.title, other.title]
    if options.other is not None:
        names = [f"{named_in(options.case)[0].name} ({names[0]})", f"{named_in(options.other)[0].name} ({names[1]})"]
    for which, name, run in zip(("first: ", "second:"), names, (one, other), strict=True):
        say(console, f"{which} {name}, {len(run.steps)} steps")
        if run.error is not None:
            say(console, f"it ended by {type(run.error).__name__}: {run.error}", style="bold red")
    _show_partings(console, found)
    console.print(_table(found))
    _show_map(console, found)
    subtitle = " against ".join(names)
    save_picture(
        console,
        options.picture,
        lambda: heat_picture("Where two runs part", subtitle, found.heat(), found.near()),
    )
    is_whole = one.error is None and other.error is None
    return EXIT_SHOWN if found.is_same and is_whole else EXIT_FOUND


def _watch_both(options: argparse.Namespace) -> tuple[WatchedCase, WatchedCase]:
    """Runs what the command line names."""
    modes = options.modes.split(",")
    if len(modes) > 2 - (options.other is not None):
        message = f"--modes {options.modes!r} names {len(modes)} modes; give one, or two and a single case"
        raise ScenarioError(message, modes=modes)
    if len(modes) == 1 and options.other is None and options.fault is None:
        message = "there is nothing to compare; give another case, two --modes, or a --fault"
        raise ScenarioError(message)
    first = load_case(options.case, options.model)
    second = first if options.other is None else load_case(options.other, options.model)
    is_only_fault = len(modes) == 1 and options.other is None
    fault = None if is_only_fault else options.fault
    return (
        watch(first.scenario, first.folder, mode=modes[0], fault=fault),
        watch(second.scenario, second.folder, mode=modes[-1], fault=options.fault),
    )


def _show_partings(console: Console, found: RunComparison) -> None:
    """Says where the runs part first: in bits, beyond rounding, and in tokens."""
    if found.is_same:
        say(console, "nothing differs: tokens, ends, and every bit of what both runs computed", style="green")
        return
    if found.first_bit is None:
        say(console, "no bit of what both computed differs")
    elif found.first_bit == found.first_other:
        say(console, f"first difference: {_words(found.first_bit)}", style="bold red")
    else:
        say(console, f"first other bits: {_words(found.first_bit)}")
        if found.first_other is not None:
            say(console, f"first beyond rounding: {_words(found.first_other)}", style="bold red")
    parted = [own for own in found.samples if own.token is not None]
    first = min(parted, key=_when, default=None)
    where = "none" if first is None else f"request {sample_name(first.key)}, {_token(first)}"
    say(console, f"first token that parts: {where}")


def _words(parting: Parting) -> str:
    one, other = parting.steps
    step = f"step {one}" if one == other else f"steps {one} and {other}"
    request = f"request {sample_name(parting.key)}"
    off = (
        f"{parting.largest:.3g} off"
        if math.isfinite(parting.largest)
        else "a number on one side only, or of two shapes"
    )
    return f"{step}, {request}, position {parting.position}, {parting.name}: {off}"


def _when(sample: SampleComparison) -> tuple[int, int]:
    """Gives the step in which a token parts, and the request; a token of a prompt parts before the first step."""
    steps = () if sample.token is None else sample.token.steps
    return max((step for step in steps if step is not None), default=-1), sample.key[0]


def _token(sample: SampleComparison) -> str:
    """Says which token parts first."""
    token = sample.token
    if token is None:
        return "all equal"
    what = "prompt" if token.output_place < 0 else f"output {token.output_place}"
    one, other = ("none" if own is None else str(own) for own in token.token_ids)
    return f"{what}, position {token.position}: {one} and {other}"


def _table(found: RunComparison) -> Table:
    table = table_of("request", "compared", "bits", "near", "other", "largest", "tokens", "ends")
    for own in found.samples:
        largest = reduce(larger, own.largest.values(), 0.0)
        counts = [str(own.count(likeness)) for likeness in Likeness]
        ends = own.ends[0] or "none"
        ends += "" if own.ends[0] == own.ends[1] else f" and {own.ends[1] or 'none'}"
        table.add_row(sample_name(own.key), str(len(own.likeness)), *counts, f"{largest:.2g}", _token(own), ends)
    return table


def _show_map(console: Console, found: RunComparison) -> None:
    """Prints one sign for each position of each request."""
    say(
        console,
        f"by position: {SIGNS[Likeness.BITS]} equal, {SIGNS[Likeness.NEAR]} near, {SIGNS[Likeness.OTHER]} other",
    )
    for start in range(0, found.num_positions, POSITIONS_IN_A_LINE):
        stop = min(found.num_positions, start + POSITIONS_IN_A_LINE)
        say(console, f"{'position':>11} {''.join(f'{place:<10}' for place in range(start, stop, 10))}".rstrip())
        for own in found.samples:
            signs = (own.likeness.get(position) for position in range(start, stop))
            line = "".join(NOT_COMPARED if sign is None else SIGNS[sign] for sign in signs)
            say(console, f"request {sample_name(own.key)} {line}".rstrip())


if __name__ == "__main__":
    sys.exit(main())

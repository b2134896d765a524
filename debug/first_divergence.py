"""Names the first module at which `refinfer` and the reference part, on one case.

Reach for it when `python -m oracle check` has failed and left a case behind, or when logits of your own
checkpoint are off: it says in which step, for which request, at which position and in which module the
difference begins, and lets the float64 witness tell which side is off.

    python debug/first_divergence.py oracle-failures/CASE.json
    python debug/first_divergence.py "run it again: python -m oracle replay oracle-failures/CASE.json"
    python debug/first_divergence.py --model DIR_OR_NAME --ids 1,2,3
    python debug/first_divergence.py --fault norm_epsilon

Ways of running are tried from the simplest on, and the first that parts is shown:
`alone` (each prompt by itself, one pass, no cache), `chunked` (prompts prefilled in chunks over
caches), then the modes `none`, `static` and `continuous`.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from rich import box
from rich.console import Console
from rich.table import Table

from oracle.case import Case
from oracle.checkpoints import CheckpointSpec
from oracle.commands.shared import positive
from oracle.errors import MismatchError, OracleError, ScenarioError
from oracle.expectation import Oracles
from oracle.faults import FAULTS
from oracle.inspection.case_file import named_in
from oracle.inspection.script import make_console
from oracle.localise import WAYS, Line, Walk, walk_scenario
from oracle.scenario import DTYPES, RequestSpec, Scenario
from refinfer.errors import RefinferError
from refinfer.hub import resolve_model

EXIT_AGREES, EXIT_PARTS, EXIT_USAGE = 0, 1, 2
"""Nothing differs; something does; the script could not run."""

NUM_NEIGHBOURS = 4
"""Lines shown before and after the first that differs."""

DEMONSTRATION = Scenario(
    requests=(
        RequestSpec((40,), max_tokens=3, ignore_eos=True),
        RequestSpec(tuple(range(2, 64)), max_tokens=6, ignore_eos=True, cuts=(5,)),
        RequestSpec((70, 71, 72, 73, 74), max_tokens=4, ignore_eos=True, cuts=(2, 4)),
    ),
    max_num_seqs=2,
    checkpoint=CheckpointSpec(
        num_heads=4,
        num_kv_heads=2,
        rope_type="llama3",
        rope_factor=32.0,
        rope_theta=500000.0,
        legacy_rope_keys=True,
        attention_bias=True,
        mlp_bias=True,
    ),
)
"""What runs where no case is named: something for each fault to break, and a request that joins late."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    options = _parser().parse_args(arguments)
    console = make_console()
    try:
        return _run(options, console)
    except (OracleError, RefinferError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Names the first module at which refinfer and the reference part.")
    parser.add_argument("case", nargs="?", help="a file that a check has written, or the line of a failure, in quotes")
    parser.add_argument("--model", help="a checkpoint folder or name, for --ids or a case that generates none")
    parser.add_argument("--ids", action="append", metavar="1,2,3", help="a prompt of --model; may be given again")
    parser.add_argument(
        "--max-tokens", type=positive, default=4, help="output tokens of each --ids (default: %(default)s)"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="instead of the case's")
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated, of: %(default)s")
    parser.add_argument("--fault", choices=FAULTS, metavar="NAME", help="plant a bug first, to see it found")
    parser.add_argument("--all", action="store_true", help="show the figures of every module, not only those around")
    return parser


def _run(options: argparse.Namespace, console: Console) -> int:
    scenario = _scenario(options)
    if options.dtype is not None:
        scenario = replace(scenario, dtype=options.dtype)
    case = Case(scenario, None if options.model is None else resolve_model(options.model))
    ways = _chosen_ways(options.ways)
    oracles = Oracles(case.folder, scenario.dtype)
    planted: AbstractContextManager[None] = nullcontext()
    if options.fault is not None:
        fault = FAULTS[options.fault]
        planted = fault.planted()
        console.print(f"planted: {fault.name}, {fault.bug}", markup=False, highlight=False, soft_wrap=True)
    with planted:
        for way in ways:
            try:
                found = walk_scenario(scenario, case.folder, way, oracles)
            except (MismatchError, RefinferError) as error:
                line = f"{way}: {type(error).__name__}: {error}"
                console.print(line, style="bold red", markup=False, highlight=False, soft_wrap=True)
                return EXIT_PARTS
            _show(console, way, found, show_all=options.all)
            if found.finding is not None:
                return EXIT_PARTS
    message = "no module parts; `python -m oracle replay` tells whether tokens, ends, text or refusals do"
    console.print(message, highlight=False, soft_wrap=True)
    return EXIT_AGREES


def _scenario(options: argparse.Namespace) -> Scenario:
    """Gives the case that the command line names."""
    if options.case is not None and options.ids is None:
        scenario = Scenario.load(named_in(options.case)[0])
        if options.model is not None and scenario.checkpoint is not None:
            message = f"{options.case} generates its own checkpoint; leave --model away"
            raise ScenarioError(message, model=options.model)
        return scenario
    if (options.model is None) != (options.ids is None) or options.case is not None:
        message = "give a case, or --model together with --ids, or none of them for the demonstration"
        raise ScenarioError(message)
    if options.ids is None:
        return DEMONSTRATION
    requests = tuple(RequestSpec(_token_ids(text), max_tokens=options.max_tokens) for text in options.ids)
    return Scenario(requests=requests, checkpoint=None)


def _token_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        message = f"--ids {text!r} are no token ids; write them like 1,2,3"
        raise ScenarioError(message, text=text) from error


def _chosen_ways(text: str) -> tuple[str, ...]:
    ways = tuple(way.strip() for way in text.split(","))
    for way in ways:
        if way not in WAYS:
            message = f"way {way!r} is unknown; choose among {', '.join(WAYS)}"
            raise ScenarioError(message, way=way)
    return ways


def _show(console: Console, way: str, walk: Walk, *, show_all: bool) -> None:
    """Prints one sentence for a way, and the figures where something differs or all are wanted."""
    style = "green" if walk.finding is None else "bold red"
    console.print(f"{way}: {walk}", style=style, markup=False, highlight=False, soft_wrap=True)
    lines = walk.lines
    if walk.finding is not None:
        names = ("subject", "reference", "witness")
        values = ", ".join(f"{name} {value!r}" for name, value in zip(names, walk.finding.values, strict=True))
        console.print(f"{values}; {walk.finding.culprit}", markup=False, highlight=False, soft_wrap=True)
        place = [line.name for line in lines].index(walk.finding.divergence.name)
        if not show_all:
            lines = lines[max(0, place - NUM_NEIGHBOURS) : place + NUM_NEIGHBOURS + 1]
    if show_all or walk.finding is not None:
        console.print(_table(walk, lines))


def _table(walk: Walk, lines: Sequence[Line]) -> Table:
    table = Table(
        caption="s subject, r reference, w witness; largest differences in this step",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
    )
    table.add_column("module, in the order of execution", overflow="fold")
    for heading in ("s - r", "s - w", "r - w", "bound"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        is_first = walk.finding is not None and line.name == walk.finding.divergence.name
        figures = (line.from_reference, line.from_witness, line.between_oracles, line.bound)
        style = "bold red" if is_first else None
        table.add_row(line.name, *(f"{figure:.1e}" if figure else "0" for figure in figures), style=style)
    return table


if __name__ == "__main__":
    sys.exit(main())

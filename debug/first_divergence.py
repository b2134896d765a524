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
caches), then every mode, `none` first and `paged_gather` last.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from oracle.case import Case
from oracle.checkpoints import CheckpointSpec
from oracle.commands.shared import chosen, known_fault, planted, positive
from oracle.errors import MismatchError, ScenarioError
from oracle.expectation import Oracles
from oracle.inspection.case_file import load_case
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, run_script, say
from oracle.localise import WAYS, Line, Walk, walk_scenario
from oracle.scenario import DTYPES, RequestSpec, Scenario
from refinfer.errors import RefinferError
from refinfer.hub import resolve_model

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
    return run_script(_run, _parser(), arguments)


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
    parser.add_argument("--fault", metavar="NAME", help="plant a bug first, to see it found")
    parser.add_argument("--all", action="store_true", help="show the figures of every module, not only those around")
    return parser


def _run(options: argparse.Namespace, console: Console) -> int:
    scenario, folder = _chosen_case(options)
    if options.dtype is not None:
        scenario = replace(scenario, dtype=options.dtype)
    case = Case(scenario, folder)
    ways = chosen("way", options.ways, WAYS)
    oracles = Oracles(case.folder, scenario.dtype)
    with planted(options.fault):
        if options.fault is not None:
            say(console, f"planted: {options.fault}, {known_fault(options.fault).bug}")
        for way in ways:
            try:
                found = walk_scenario(scenario, case.folder, way, oracles)
            except (MismatchError, RefinferError) as error:
                say(console, f"{way}: {type(error).__name__}: {error}", style="bold red")
                return EXIT_FOUND
            _show(console, way, found, show_all=options.all)
            if found.finding is not None:
                return EXIT_FOUND
    say(console, "no module parts; `python -m oracle replay` tells whether tokens, ends, text or refusals do")
    return EXIT_SHOWN


def _chosen_case(options: argparse.Namespace) -> tuple[Scenario, Path | None]:
    """Gives the case that the command line names, and the folder of its checkpoint where it generates none."""
    if options.case is not None and options.ids is None:
        case = load_case(options.case, options.model)
        if case.scenario.is_symbolic:
            message = f"{case.path} runs on the symbolic model, which has no modules; show_step.py shows its steps"
            raise ScenarioError(message, path=case.path)
        return case.scenario, case.folder
    if (options.model is None) != (options.ids is None) or options.case is not None:
        message = "give a case, or --model together with --ids, or none of them for the demonstration"
        raise ScenarioError(message)
    if options.ids is None:
        return DEMONSTRATION, None
    requests = tuple(RequestSpec(_token_ids(text), max_tokens=options.max_tokens) for text in options.ids)
    return Scenario(requests=requests, checkpoint=None), resolve_model(options.model)


def _token_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        message = f"--ids {text!r} are no token ids; write them like 1,2,3"
        raise ScenarioError(message, text=text) from error


def _show(console: Console, way: str, walk: Walk, *, show_all: bool) -> None:
    """Prints one sentence for a way, and the figures where something differs or all are wanted."""
    say(console, f"{way}: {walk}", style="green" if walk.finding is None else "bold red")
    lines = walk.lines
    if walk.finding is not None:
        names = ("subject", "reference", "witness")
        values = ", ".join(f"{name} {value!r}" for name, value in zip(names, walk.finding.values, strict=True))
        say(console, f"{values}; {walk.finding.culprit}")
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

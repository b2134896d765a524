"""The command line of the harness: `python -m oracle check`, `replay`, `properties`, `faults`."""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from oracle.case import Case
from oracle.check import Checker, CheckSettings
from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.errors import CheckFailed, FaultNotCaught, OracleError, ScenarioError
from oracle.faults import FAULTS
from oracle.faults.hunt import hunt
from oracle.properties import PROPERTIES, observe
from oracle.reference import Reference
from oracle.report import as_json, environment, save_failures, show_table
from oracle.scenario import Scenario
from oracle.sensitivity import require_sensitive
from oracle.strategies import model_scenarios, scenarios
from oracle.subjects import MODES
from oracle.verdicts import Cell, Verdict
from refinfer.config import ModelConfig
from refinfer.errors import RefinferError
from refinfer.hub import resolve_model

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_VACUOUS, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
"""Everything held; something did not; the command could not run; nothing failed, but a property saw nothing;
nothing had failed when somebody interrupted, which is no pass."""

_EXAMPLES_BY_PROFILE = {"quick": 120, "ci": 300, "deep": 3000}
_MODEL_EXAMPLES_BY_PROFILE = {"quick": 4, "ci": 20, "deep": 200}
"""A real model takes seconds for what a generated one does in milliseconds."""


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
    check = commands.add_parser("check", help="hold the modes to every property, on generated cases")
    check.add_argument("--modes", default=",".join(MODES), help="comma-separated, of: %(default)s")
    check.add_argument("--model", help="a checkpoint folder or name, instead of generated checkpoints")
    check.add_argument(
        "--profile", choices=_EXAMPLES_BY_PROFILE, default="quick", help="how many cases (default: %(default)s)"
    )
    check.add_argument("--examples", type=_positive, help="how many cases, instead of the profile's")
    check.add_argument("--time-budget", type=float, metavar="SECONDS", help="check no further case after this time")
    check.add_argument("--seed", type=int, default=0, help="the same seed draws the same cases (default: %(default)s)")
    check.add_argument("--json", type=Path, metavar="FILE", help="write the whole report there")
    check.add_argument(
        "--failures",
        type=Path,
        default=Path("oracle-failures"),
        metavar="DIR",
        help="where failing cases go (default: %(default)s)",
    )
    check.set_defaults(command=_check)
    replay = commands.add_parser("replay", help="run one saved case again")
    replay.add_argument("case", type=Path, help="a file that a check has written")
    replay.add_argument("--model", help="the checkpoint, for a case that generates none")
    replay.set_defaults(command=_replay)
    faults = commands.add_parser("faults", help="plant each bug in turn, and show what catches it")
    faults.add_argument("names", nargs="*", metavar="NAME", help="which faults (default: all)")
    faults.add_argument("--list", action="store_true", help="say what each fault is, and plant none")
    faults.add_argument("--examples", type=_positive, default=120, help="most cases for each (default: %(default)s)")
    faults.add_argument("--seed", type=int, default=0, help="the same seed draws the same cases (default: %(default)s)")
    faults.add_argument("--shrink", action="store_true", help="search for the smallest case as well")
    faults.set_defaults(command=_faults)
    properties = commands.add_parser("properties", help="list what must hold")
    properties.set_defaults(command=_properties)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        message = f"{value} is not at least 1"
        raise argparse.ArgumentTypeError(message)
    return value


def _check(options: argparse.Namespace, console: Console) -> int:
    modes = _chosen_modes(options.modes)
    folder = None if options.model is None else resolve_model(options.model)
    _pin_threads(folder)
    examples_by_profile = _EXAMPLES_BY_PROFILE if folder is None else _MODEL_EXAMPLES_BY_PROFILE
    check_settings = CheckSettings(
        modes=modes,
        strategy=scenarios() if folder is None else model_scenarios(ModelConfig.from_folder(folder).vocab_size),
        folder=folder,
        num_examples=options.examples or examples_by_profile[options.profile],
        seed=options.seed,
        time_budget=options.time_budget,
        properties=PROPERTIES,
    )
    if folder is None:
        _require_sensitive_checkpoints()
    facts = " · ".join(f"{name} {value}" for name, value in environment().items())
    start = f"checking {', '.join(modes)} on {check_settings.num_examples} cases, seed {options.seed}"
    console.print(start, highlight=False)
    console.print(facts, style="dim", highlight=False)
    start_time = time.monotonic()
    checker, cells = _run_with_progress(check_settings, console)
    seconds = time.monotonic() - start_time
    show_table(console, cells, modes)
    for path in save_failures(cells, options.failures):
        line = f"run it again: python -m oracle replay {path}"
        console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)
    verdicts = [cell.verdict for cell in cells]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in Verdict)
    stopped = " (interrupted)" if checker.interrupted else ""
    console.print(f"{checker.num_cases} cases in {seconds:.0f} s{stopped}: {counts}", style="bold", highlight=False)
    if options.json is not None:
        text = as_json(cells, num_cases=checker.num_cases, seconds=seconds, interrupted=checker.interrupted)
        options.json.write_text(text, encoding="utf-8")
    if Verdict.FAIL in verdicts:
        return EXIT_FAIL
    if checker.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_VACUOUS if Verdict.VACUOUS in verdicts else EXIT_PASS


def _run_with_progress(check_settings: CheckSettings, console: Console) -> tuple[Checker, list[Cell]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("cases", total=check_settings.num_examples)
        checker = Checker(check_settings, on_progress=lambda count: progress.update(task, completed=count))
        return checker, checker.run()


def _pin_threads(folder: Path | None) -> None:
    """Runs generated models in one thread: on matrices so small, several wait for each other more than they compute."""
    if folder is None:
        torch.set_num_threads(1)


def _require_sensitive_checkpoints() -> None:
    """Makes sure that faults would show on generated models, tied and untied."""
    for is_tied in (False, True):
        spec = CheckpointSpec(tie_word_embeddings=is_tied)
        with tempfile.TemporaryDirectory() as folder:
            reference = Reference.open(write_checkpoint(spec, Path(folder)))
            require_sensitive(reference.logits, spec.vocab_size)


def _chosen_modes(text: str) -> tuple[str, ...]:
    modes = tuple(mode.strip() for mode in text.split(","))
    for mode in modes:
        if mode not in MODES:
            message = f"mode {mode!r} is unknown; choose among {', '.join(MODES)}"
            raise OracleError(message, mode=mode)
    return modes


def _replay(options: argparse.Namespace, console: Console) -> int:
    scenario = Scenario.load(options.case)
    if options.model is not None and scenario.checkpoint is not None:
        message = f"{options.case} generates its own checkpoint; leave --model away"
        raise ScenarioError(message, model=options.model)
    folder = None if options.model is None else resolve_model(options.model)
    _pin_threads(folder)
    case = Case(scenario, folder)
    status = EXIT_PASS
    for prop in PROPERTIES:
        if scenario.dtype not in prop.dtypes or (prop.is_generated_only and folder is not None):
            continue
        for mode in prop.modes:
            try:
                verdict = Verdict.PASS if observe(prop, case, mode).witnessed else Verdict.VACUOUS
                console.print(f"{verdict:8} {prop.name} × {mode}", highlight=False)
            except CheckFailed as error:
                status = EXIT_FAIL
                line = f"{Verdict.FAIL:8} {prop.name} × {mode}: {error}"
                console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
    return status


def _faults(options: argparse.Namespace, console: Console) -> int:
    unknown = [name for name in options.names if name not in FAULTS]
    if unknown:
        message = f"fault {unknown[0]!r} is unknown; `python -m oracle faults --list` names them all"
        raise OracleError(message, name=unknown[0])
    _pin_threads(None)
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
            catch = hunt(fault, check_settings)
        except FaultNotCaught as error:
            console.print(f"  NOT CAUGHT: {escape(str(error))}", style="bold red", highlight=False, soft_wrap=True)
            continue
        num_caught += 1
        console.print(
            f"  caught by {catch.property_name} × {catch.mode} in case {catch.num_cases}, {catch.size}",
            style="green",
            highlight=False,
            soft_wrap=True,
        )
    if options.list:
        return EXIT_PASS
    console.print(f"{num_caught} of {len(chosen)} faults caught", style="bold", highlight=False)
    return EXIT_PASS if num_caught == len(chosen) else EXIT_FAIL


def _properties(options: argparse.Namespace, console: Console) -> int:  # noqa: ARG001 - every command has both
    for prop in PROPERTIES:
        console.print(f"[bold]{prop.name:22}[/] {prop.question}", highlight=False)
        console.print(
            f"{'':22} modes {', '.join(prop.modes)}; dtypes {', '.join(prop.dtypes)}", style="dim", highlight=False
        )
    return EXIT_PASS


if __name__ == "__main__":
    sys.exit(main())

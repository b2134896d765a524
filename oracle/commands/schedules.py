"""`python -m oracle schedules`: runs many schedules, and says what they had in common with trouble."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from oracle.choosers import RandomChooser
from oracle.commands.progress import shown_progress
from oracle.commands.shared import (
    EXIT_FAIL,
    EXIT_PASS,
    EXIT_VACUOUS,
    add_fault_option,
    chosen,
    pin_threads,
    planted,
    positive,
)
from oracle.errors import OracleError
from oracle.sampling_effects import OTHER_PARAMETERS, TOKEN_PARAMETERS
from oracle.scenario import DTYPES, Scenario
from oracle.schedule_properties import CHECKPOINTS, ModelRuns
from oracle.schedule_run import ModeReport, RunSchedule, run_schedules
from oracle.schedule_strategies import choose_model_schedule, choose_symbolic_schedule
from oracle.schedule_witness import FEATURES, PAIRS, SPECULATIVE_FEATURES
from oracle.subjects import MODES
from oracle.symbolic_check import JOINING_MODES, SYMBOLIC_MODES, run_with_effects
from oracle.verdicts import Verdict


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to a command line."""
    schedules = commands.add_parser("schedules", help="run many schedules against each of their requests alone")
    schedules.add_argument("--symbolic", action="store_true", help="on the symbolic model instead of tiny real ones")
    schedules.add_argument("--plain", action="store_true", help="in the plain manner of numerics")
    schedules.add_argument("--speculative", action="store_true", help="with guessed tokens in every schedule, not some")
    schedules.add_argument(
        "--modes", help="comma-separated (default: all; with --symbolic paged and continuous; with --speculative paged)"
    )
    schedules.add_argument("--examples", type=positive, default=500, help="how many schedules (default: %(default)s)")
    schedules.add_argument("--seed", type=int, default=0, help="the same seed makes the same schedules")
    schedules.add_argument("--dtype", choices=DTYPES, help="of the models (default: float32)")
    schedules.add_argument("--threads", type=positive, default=1, help="threads of torch (default: %(default)s)")
    schedules.add_argument("--time-budget", type=float, metavar="SECONDS", help="begin no schedule after this time")
    schedules.add_argument("--failures", type=Path, default=Path("oracle-failures"), metavar="DIR")
    add_fault_option(schedules)
    schedules.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status."""
    if options.symbolic and options.dtype is not None:
        message = f"--dtype {options.dtype} has no meaning with --symbolic, which runs no model; leave one of them out"
        raise OracleError(message)
    pin_threads(None, options.threads)
    known = SYMBOLIC_MODES if options.symbolic else MODES
    usual: tuple[str, ...] = JOINING_MODES if options.symbolic else MODES
    if options.speculative:
        usual = ("paged",) if options.symbolic else ("paged", "paged_gather")
    modes = usual if options.modes is None else chosen("mode", options.modes, known)
    features = (*FEATURES, *PAIRS, *(SPECULATIVE_FEATURES if options.speculative else ()))
    runner: RunSchedule = run_with_effects if options.symbolic else ModelRuns().run
    deadline = None if options.time_budget is None else time.monotonic() + options.time_budget
    done = count(1)
    with planted(options.fault), shown_progress(console, "schedules", options.examples) as tell:
        reports = run_schedules(
            schedules_of(options),
            runner,
            modes,
            deadline=deadline,
            on_schedule=lambda: tell(next(done)),
            features=features,
        )
    show(console, reports)
    for report in reports:
        _save(console, report, options.failures)
    verdicts = [report.verdict for report in reports]
    if Verdict.FAIL in verdicts:
        return EXIT_FAIL
    return EXIT_VACUOUS if Verdict.VACUOUS in verdicts else EXIT_PASS


def schedules_of(options: argparse.Namespace) -> Iterator[Scenario]:
    """Gives the schedules of a run, made as they are needed."""
    choose = RandomChooser(options.seed)
    is_speculative = True if options.speculative else None
    for _ in range(options.examples):
        if options.symbolic:
            yield choose_symbolic_schedule(choose, is_speculative=is_speculative)
        else:
            scenario = choose_model_schedule(
                choose, CHECKPOINTS, batch_invariant=not options.plain, is_speculative=is_speculative
            )
            yield replace(scenario, dtype=options.dtype or "float32")


def show(console: Console, reports: list[ModeReport]) -> None:
    """Prints the share of schedules that had each feature, mode by mode."""
    table = Table(title="schedules that had a feature", title_justify="left")
    table.add_column("feature", no_wrap=True)
    for report in reports:
        table.add_column(report.mode)
    has_effects = any(report.table.count_by_effect for report in reports)  # runs on models do not look for them
    table.add_row("verdict", *(str(report.verdict) for report in reports))
    table.add_row("schedules", *(str(report.table.num_schedules) for report in reports))
    table.add_row("a second", *(f"{report.table.num_schedules / (report.seconds or 1):.0f}" for report in reports))
    for name in ("num_requests", "num_steps"):
        means = (getattr(report.table, name) / max(1, report.table.num_schedules) for report in reports)
        table.add_row(f"mean {name}", *(f"{mean:.1f}" for mean in means))
    for name in (*FEATURES, *PAIRS, *SPECULATIVE_FEATURES):
        table.add_row(name, *(f"{report.table.share(name):.1%}" for report in reports))
    for name in (*TOKEN_PARAMETERS, *OTHER_PARAMETERS) if has_effects else ():
        table.add_row(f"effect of {name}", *(str(report.table.count_by_effect[name]) for report in reports))
    console.print(table)


def _save(console: Console, report: ModeReport, folder: Path) -> None:
    if report.failure is None or report.failure.scenario is None:
        if report.verdict is Verdict.VACUOUS:
            console.print(
                f"vacuous: {report.mode} never had {', '.join(report.table.missing(report.features))}", markup=False
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"schedules-{report.mode}.json"
    path.write_text(report.failure.scenario.to_json(), encoding="utf-8")
    for line in (f"FAIL {report.mode}: {report.failure.message}", f"run it again: python -m oracle replay {path}"):
        console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)

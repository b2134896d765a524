"""`python -m oracle check`: holds the modes to every property, on generated cases."""

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from oracle.case_check import CaseReport
from oracle.check import Checker, CheckSettings
from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.commands import dock
from oracle.commands.progress import shown_progress
from oracle.commands.shared import (
    EXIT_FAIL,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    EXIT_VACUOUS,
    add_fault_option,
    chosen_dtypes,
    chosen_modes,
    chosen_properties,
    output_file,
    pin_threads,
    planted,
    positive,
    usual_num_processes,
)
from oracle.digests import DigestWriter
from oracle.errors import OracleError
from oracle.reference import Reference
from oracle.report import as_json, environment, save_failures, show_table
from oracle.scenario import DTYPES
from oracle.sensitivity import require_sensitive
from oracle.strategies import model_scenarios, scenarios
from oracle.subjects import MODES
from oracle.verdicts import Cell, Verdict
from refinfer.config import ModelConfig
from refinfer.hub import resolve_model

_EXAMPLES_BY_PROFILE = {"quick": 100, "ci": 300, "deep": 3000}
_MODEL_EXAMPLES_BY_PROFILE = {"quick": 4, "ci": 20, "deep": 200}
_MODEL_DTYPES = ("float32",)
"""A real model takes seconds for what a generated one does in milliseconds."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to a command line."""
    check = commands.add_parser("check", help="hold the modes to every property, on generated cases")
    check.add_argument("--modes", default=",".join(MODES), help="comma-separated, of: %(default)s")
    check.add_argument("--properties", help="comma-separated, as `properties` lists them (default: all)")
    check.add_argument(
        "--dtypes",
        help=f"comma-separated, of: {','.join(DTYPES)} (default: all; with --model {','.join(_MODEL_DTYPES)})",
    )
    check.add_argument("--model", help="a checkpoint folder or name, instead of generated checkpoints")
    check.add_argument(
        "--profile", choices=_EXAMPLES_BY_PROFILE, default="quick", help="how many cases (default: %(default)s)"
    )
    check.add_argument("--examples", type=positive, help="how many cases, instead of the profile's")
    check.add_argument("--time-budget", type=float, metavar="SECONDS", help="begin no further case after this time")
    check.add_argument("--seed", type=int, default=0, help="the same seed draws the same cases (default: %(default)s)")
    check.add_argument("--threads", type=positive, help="how many (default: 1; with --model what torch takes)")
    check.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="how many check cases side by side (default: one for each core, at most 4; with --model or --threads 1)",
    )
    check.add_argument(
        "--chunkings",
        type=positive,
        default=2,
        metavar="N",
        help="in how many ways `bits` cuts requests into chunks, besides the drawn one (default: %(default)s)",
    )
    check.add_argument(
        "--digests", type=output_file, metavar="FILE", help="write a digest of each row of logits there, for `digests`"
    )
    check.add_argument("--json", type=output_file, metavar="FILE", help="write the whole report there")
    check.add_argument(
        "--failures",
        type=Path,
        default=Path("oracle-failures"),
        metavar="DIR",
        help="where failing cases go (default: %(default)s)",
    )
    add_fault_option(check)
    dock.add_options(check)
    check.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status."""
    is_dock = options.engine is not None or options.engine_command is not None
    if options.fault is not None and (is_dock or options.processes not in (None, 1)):
        message = (
            f"fault {options.fault!r} is planted in the refinfer of this process; leave engines and --processes away"
        )
        raise OracleError(message, name=options.fault)
    if is_dock:
        return dock.run(options, console)
    with planted(options.fault):
        return _check(options, console)


def _check(options: argparse.Namespace, console: Console) -> int:
    modes = chosen_modes(options.modes)
    folder = None if options.model is None else resolve_model(options.model)
    pin_threads(folder, options.threads)
    check_settings = _settings(options, modes, folder)
    if folder is None:
        _require_sensitive_checkpoints()
    facts = " · ".join(f"{name} {value}" for name, value in environment().items())
    start = f"checking {', '.join(modes)} on {check_settings.num_examples} cases, seed {options.seed}"
    console.print(start, highlight=False)
    console.print(facts, style="dim", highlight=False)
    start_time = time.monotonic()
    checker, cells = _run_with_progress(check_settings, console, options.digests)
    seconds = time.monotonic() - start_time
    show_table(console, cells, modes)
    for path in save_failures(cells, options.failures):
        line = f"run it again: python -m oracle replay {path}  (--explain says why)"
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


def _settings(options: argparse.Namespace, modes: tuple[str, ...], folder: Path | None) -> CheckSettings:
    default_dtypes = DTYPES if folder is None else _MODEL_DTYPES
    dtypes = default_dtypes if options.dtypes is None else chosen_dtypes(options.dtypes)
    examples_by_profile = _EXAMPLES_BY_PROFILE if folder is None else _MODEL_EXAMPLES_BY_PROFILE
    return CheckSettings(
        modes=modes,
        strategy=scenarios(dtypes)
        if folder is None
        else model_scenarios(ModelConfig.from_folder(folder).vocab_size, dtypes),
        folder=folder,
        num_examples=options.examples or examples_by_profile[options.profile],
        seed=options.seed,
        time_budget=options.time_budget,
        properties=chosen_properties(options.properties),
        num_chunkings=options.chunkings,
        digest_modes=() if options.digests is None else modes,
        num_processes=1 if options.fault else options.processes or usual_num_processes(folder, options.threads),
    )


def _run_with_progress(
    check_settings: CheckSettings, console: Console, digests: Path | None
) -> tuple[Checker, list[Cell]]:
    with ExitStack() as stack:
        tell = stack.enter_context(shown_progress(console, "cases", check_settings.num_examples))
        writer = None if digests is None else stack.enter_context(DigestWriter(digests, check_settings.seed))

        def on_case(report: CaseReport) -> None:
            tell(report.task.index + 1)
            if writer is not None:
                writer.write(report.digest_lines)

        checker = Checker(check_settings, on_case)
        return checker, checker.run()


def _require_sensitive_checkpoints() -> None:
    """Makes sure that faults would show on generated models, tied and untied."""
    for is_tied in (False, True):
        spec = CheckpointSpec(tie_word_embeddings=is_tied)
        with tempfile.TemporaryDirectory() as folder:
            reference = Reference.open(write_checkpoint(spec, Path(folder)))
            require_sensitive(reference.logits, spec.vocab_size)

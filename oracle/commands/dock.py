"""`python -m oracle check --engine`: holds any engine to the contract that it declares."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oracle.commands.progress import shown_progress
from oracle.commands.shared import (
    EXIT_FAIL,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    EXIT_VACUOUS,
    chosen,
    output_file,
    positive,
    words_of_engine,
)
from oracle.contract.check_engine import check_engine
from oracle.contract.judging import CHECKS
from oracle.contract.outcome import CheckVerdict, EngineReport
from oracle.contract.recording import Against, OtherEngine, Recording
from oracle.contract.referee import ModelReferee, Referee
from oracle.contract.session import OpenReferee, open_model_referee
from oracle.contract.show import as_json, save_scenarios, show_card
from oracle.engines.opening import open_engine
from oracle.errors import OracleError
from oracle.report import environment
from refinfer.hub import resolve_model

_ONLY_FOR_MODES = ("properties", "dtypes", "examples", "processes", "digests")
"""Options of `check` that say nothing about an engine."""


def add_options(check: argparse.ArgumentParser) -> None:
    """Adds what concerns an engine in the dock to the options of `check`."""
    group = check.add_argument_group("an engine in the dock, instead of the modes of refinfer")
    group.add_argument(
        "--engine", help="a known name (`python -m oracle engines`), MODULE:ATTRIBUTE, or http://HOST:PORT"
    )
    group.add_argument("--python", metavar="PATH", help="the Python in whose environment the engine is installed")
    group.add_argument("--command", dest="engine_command", help="what starts a process that speaks the protocol")
    group.add_argument("--timeout", type=float, default=300.0, help="seconds for each answer (default: %(default)g)")
    group.add_argument("--checks", help=f"comma-separated, of: {','.join(CHECKS)} (default: all)")
    group.add_argument("--families", help="comma-separated model families, of those that the engine declares")
    group.add_argument(
        "--knob",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="hold one of its settings to one value, as JSON or a plain word; may be repeated",
    )
    group.add_argument(
        "--parameter",
        action="append",
        metavar="NAME[=VALUE]",
        help="let requests ask for this alone, at any value or at this one; may be repeated",
    )
    group.add_argument("--constructions", type=positive, metavar="N", help="in how many ways it is opened")
    group.add_argument("--runs", type=positive, metavar="N", help="how many runs in each of them")
    group.add_argument("--shrink-seconds", type=float, metavar="N", help="for making failures small, all together")
    group.add_argument("--known", type=Path, metavar="FILE", help="deviations that are known, each with its reason")
    group.add_argument(
        "--reference",
        choices=tuple(_REFEREE_BY_NAME),
        default=next(iter(_REFEREE_BY_NAME)),
        help="who judges tokens: transformers' model, widened to float64; the NumPy witness (Llama only); nobody",
    )
    group.add_argument("--against", metavar="ENGINE|FILE", help="another engine, or a recording, to agree with")
    group.add_argument("--record", type=output_file, metavar="FILE", help="write what it gives there, for --against")


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status.

    Raises:
        OracleError: Options do not go together, or the engine is not there.
    """
    _refuse_options_of_modes(options)
    torch.set_num_threads(options.threads or 1)
    folder = None if options.model is None else resolve_model(options.model)
    engine = open_engine(options.engine, python=options.python, command=options.engine_command, timeout=options.timeout)
    name = options.engine or options.engine_command
    facts = " · ".join(f"{key} {value}" for key, value in environment().items())
    console.print(f"{name} in the dock, profile {options.profile}, seed {options.seed}", highlight=False)
    console.print(facts, style="dim", highlight=False)
    recording = Recording(name)
    with shown_progress(console, "opening", 1.0) as tell:
        report = check_engine(
            engine,
            model=folder,
            known=options.known,
            on_progress=tell,
            profile=options.profile,
            seed=options.seed,
            time_budget=options.time_budget,
            families=None if options.families is None else tuple(options.families.split(",")),
            knobs=dict(knob(text) for text in options.knob),
            parameters=None if options.parameter is None else dict(map(parameter, options.parameter)),
            shrink_seconds=options.shrink_seconds,
            num_constructions=options.constructions,
            num_runs=options.runs,
            checks=None if options.checks is None else chosen("check", options.checks, tuple(CHECKS)),
            open_referee=_REFEREE_BY_NAME[options.reference],
            against=_against(options, folder),
            on_run=recording.add if options.record is not None else None,
        )
    return _show(options, console, report, recording)


def _show(options: argparse.Namespace, console: Console, report: EngineReport, recording: Recording) -> int:
    show_card(console, report)
    for path in save_scenarios(report, options.failures):
        line = f"run it again: python -m oracle replay {path} {shlex.join(words_of_engine(options))}"
        console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)
    console.print(f"verdict: {report.verdict}", style="bold", highlight=False)
    if options.json is not None:
        options.json.write_text(as_json(report), encoding="utf-8")
    if options.record is not None:
        recording.save(options.record)
    if report.verdict is CheckVerdict.FAIL:
        return EXIT_FAIL
    if report.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_VACUOUS if report.verdict is CheckVerdict.VACUOUS else EXIT_PASS


def knob(text: str) -> tuple[str, Any]:
    """Reads NAME=VALUE; what is no JSON is a word."""
    name, separator, value = text.partition("=")
    if not separator:
        message = f"--knob {text} is not NAME=VALUE"
        raise OracleError(message, option="knob")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parameter(text: str) -> tuple[str, Any]:
    """Reads NAME or NAME=VALUE."""
    return knob(text) if "=" in text else (text, None)


def _refuse_options_of_modes(options: argparse.Namespace) -> None:
    given = [name for name in _ONLY_FOR_MODES if getattr(options, name) is not None]
    if given:
        message = f"--{given[0]} is about the modes of refinfer, and says nothing about an engine; leave it away"
        raise OracleError(message, option=given[0])


def _no_referee(_folder: Path, _dtype: str) -> Referee | None:
    return None


def _open_witness(folder: Path, dtype: str) -> Referee | None:
    return ModelReferee(folder, dtype, witness=True)


_REFEREE_BY_NAME: dict[str, OpenReferee] = {
    "transformers": open_model_referee,
    "witness": _open_witness,
    "none": _no_referee,
}
"""Who may judge tokens; the first does unless another one is asked for."""


def _against(options: argparse.Namespace, folder: Path | None) -> Against | None:
    if options.against is None:
        return None
    path = Path(options.against)
    return Recording.load(path).find if path.is_file() else OtherEngine(open_engine(options.against), folder).find

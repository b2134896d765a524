"""`python -m oracle replay`: runs one saved case again."""

import argparse
from pathlib import Path

from rich.console import Console

from oracle.case import Case
from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, chosen_properties, pin_threads
from oracle.errors import CheckFailed, ScenarioError
from oracle.properties import observe
from oracle.scenario import Scenario
from oracle.symbolic_check import SYMBOLIC_MODES, run_with_effects
from oracle.verdicts import Verdict
from refinfer.hub import resolve_model


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to a command line."""
    replay = commands.add_parser("replay", help="run one saved case again")
    replay.add_argument("case", type=Path, help="a file that a check has written")
    replay.add_argument("--model", help="the checkpoint, for a case that generates none")
    replay.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status."""
    scenario = Scenario.load(options.case)
    if scenario.is_symbolic:
        return _replay_symbolic(scenario, console)
    if options.model is not None and scenario.checkpoint is not None:
        message = f"{options.case} generates its own checkpoint; leave --model away"
        raise ScenarioError(message, model=options.model)
    folder = None if options.model is None else resolve_model(options.model)
    pin_threads(folder)
    case = Case(scenario, folder)
    status = EXIT_PASS
    for prop in chosen_properties(None):
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


def _replay_symbolic(scenario: Scenario, console: Console) -> int:
    status = EXIT_PASS
    for mode in SYMBOLIC_MODES:
        try:
            run_with_effects(scenario, mode)
            console.print(f"{Verdict.PASS:8} symbolic schedules × {mode}", highlight=False)
        except CheckFailed as error:
            status = EXIT_FAIL
            line = f"{Verdict.FAIL:8} symbolic schedules × {mode}: {error}"
            console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
    return status

"""`python -m oracle replay`: runs one saved case again."""

import argparse
import json
import shlex
from contextlib import closing
from pathlib import Path

from rich.console import Console

from oracle.case import Case
from oracle.commands.shared import (
    EXIT_FAIL,
    EXIT_PASS,
    add_fault_option,
    chosen_properties,
    output_file,
    pin_threads,
    planted,
    words_of_engine,
)
from oracle.contract.findings import Findings
from oracle.contract.reproducing import judge_again
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.contract.watched import WatchedEngine
from oracle.engines.opening import open_engine
from oracle.errors import CheckFailed, ScenarioError
from oracle.explain.explain_engine import explain_engine
from oracle.explain.explain_scenario import NothingFailed, explain_scenario
from oracle.explain.page import write_page
from oracle.explain.show import show_explanation
from oracle.explain.trace import write_trace
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
    replay.add_argument("--engine", help="the engine, for a case that was found on one in the dock; see `check --help`")
    replay.add_argument("--python", metavar="PATH", help="the Python in whose environment it is installed")
    replay.add_argument("--command", dest="engine_command", help="what starts a process that speaks the protocol")
    replay.add_argument(
        "--explain", action="store_true", help="say why it fails: from the first token to what is to blame"
    )
    replay.add_argument("--explanation", type=output_file, metavar="FILE", help="write the explanation there, as JSON")
    replay.add_argument("--page", type=output_file, metavar="FILE", help="write the explanation there, as a page")
    replay.add_argument(
        "--trace", type=output_file, metavar="FILE", help="write its steps there, for chrome://tracing or Perfetto"
    )
    add_fault_option(replay)
    replay.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status."""
    if options.fault is not None and EngineScenario.is_in(options.case):
        message = f"fault {options.fault!r} is one of refinfer, and {options.case} of an engine; leave --fault away"
        raise ScenarioError(message, fault=options.fault)
    with planted(options.fault):
        return _replay(options, console)


def _replay(options: argparse.Namespace, console: Console) -> int:
    if options.explain or any((options.explanation, options.page, options.trace)):
        return _explain(options, console)
    if EngineScenario.is_in(options.case):
        return _replay_on_engine(options, EngineScenario.load(options.case), console)
    scenario = Scenario.load(options.case)
    if scenario.is_symbolic:
        return _replay_symbolic(scenario, console)
    folder = _folder_of(options, scenario)
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


def _replay_on_engine(options: argparse.Namespace, scenario: EngineScenario, console: Console) -> int:
    """Runs a case of an engine in the dock again, in a fresh engine, and tells everything that differs."""
    session = _session_of(options, scenario)
    findings = Findings()
    with closing(session.engine):
        judge_again(session, scenario, findings)
    for finding in findings.found:
        line = f"{finding.kind:8} {finding.check}, request {finding.request_id}: {finding.message}"
        console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
    seen = ", ".join(f"{check} {number}" for check, number in findings.num_seen.items())
    console.print(f"judged: {seen}", highlight=False, soft_wrap=True)
    return EXIT_FAIL if findings.wrong() else EXIT_PASS


def _session_of(options: argparse.Namespace, scenario: EngineScenario) -> EngineSession:
    if options.engine is None and options.engine_command is None:
        message = f"{options.case} was found on {scenario.engine}; name the engine with --engine"
        raise ScenarioError(message, engine=scenario.engine)
    folder = None if options.model is None else resolve_model(options.model)
    engine = WatchedEngine(open_engine(options.engine, python=options.python, command=options.engine_command))
    return EngineSession(engine, engine.declare(), folder=folder)


def _folder_of(options: argparse.Namespace, scenario: Scenario) -> Path | None:
    if options.model is not None and scenario.checkpoint is not None:
        message = f"{options.case} generates its own checkpoint; leave --model away"
        raise ScenarioError(message, model=options.model)
    return None if options.model is None else resolve_model(options.model)


def _explain(options: argparse.Namespace, console: Console) -> int:
    """Says why a case fails; one that passes is no failure."""
    command = _command_of(options)
    try:
        if EngineScenario.is_in(options.case):
            scenario = EngineScenario.load(options.case)
            session = _session_of(options, scenario)
            with closing(session.engine):
                explanation = explain_engine(scenario, session, command=command)
        else:
            own = Scenario.load(options.case)
            folder = _folder_of(options, own)
            pin_threads(folder)
            explanation = explain_scenario(own, folder, command=command)
    except NothingFailed as error:
        console.print(str(error), highlight=False, soft_wrap=True)
        return EXIT_PASS
    if options.explanation is not None:
        text = json.dumps(explanation.to_data(), indent=1)
        options.explanation.write_text(text, encoding="utf-8")
    if options.page is not None:
        write_page(explanation, options.page)
    if options.trace is not None:
        write_trace(explanation, options.trace)
    show_explanation(console, explanation)
    return EXIT_FAIL


def _command_of(options: argparse.Namespace) -> str:
    """Gives the command line that explains the case again."""
    pairs = (("--model", options.model), ("--fault", options.fault))
    words = [word for name, value in pairs if value is not None for word in (name, str(value))]
    return shlex.join(
        ["python", "-m", "oracle", "replay", str(options.case), *words, *words_of_engine(options), "--explain"]
    )


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

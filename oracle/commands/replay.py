"""`python -m oracle replay`: runs one saved case again."""

import argparse
from pathlib import Path

from rich.console import Console

from oracle.case import Case
from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, chosen_properties, pin_threads
from oracle.contract.findings import Findings
from oracle.contract.law_check import check_law
from oracle.contract.refusal_check import check_refusals
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.contract.watched import WatchedEngine
from oracle.engines.opening import open_engine
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
    replay.add_argument("--engine", help="the engine, for a case that was found on one in the dock; see `check --help`")
    replay.add_argument("--python", metavar="PATH", help="the Python in whose environment it is installed")
    replay.add_argument("--command", dest="engine_command", help="what starts a process that speaks the protocol")
    replay.set_defaults(command=run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the command and gives its exit status."""
    if EngineScenario.is_in(options.case):
        return _replay_on_engine(options, EngineScenario.load(options.case), console)
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


def _replay_on_engine(options: argparse.Namespace, scenario: EngineScenario, console: Console) -> int:
    """Runs a case of an engine in the dock again, in a fresh engine, and tells everything that differs."""
    if options.engine is None and options.engine_command is None:
        message = f"{options.case} was found on {scenario.engine}; name the engine with --engine"
        raise ScenarioError(message, engine=scenario.engine)
    folder = None if options.model is None else resolve_model(options.model)
    engine = WatchedEngine(open_engine(options.engine, python=options.python, command=options.engine_command))
    session = EngineSession(engine, engine.declare(), folder=folder)
    findings = Findings()
    if scenario.check in ("refusals", "law"):
        _judge_without_drawing(session, scenario, findings)
    else:
        session.judge(scenario, findings, fresh=True)
    engine.close()
    for finding in findings.found:
        line = f"{finding.kind:8} {finding.check}, request {finding.request_id}: {finding.message}"
        console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
    seen = ", ".join(f"{check} {number}" for check, number in findings.num_seen.items())
    console.print(f"judged: {seen}", highlight=False, soft_wrap=True)
    return EXIT_FAIL if findings.wrong() else EXIT_PASS


def _judge_without_drawing(session: EngineSession, scenario: EngineScenario, findings: Findings) -> None:
    """Runs a whole check again that judges by its own requests, and keeps what the case is about."""
    model = session.open(scenario, fresh=True)
    if scenario.check == "refusals":
        found = check_refusals(session.engine, session.declaration, model.limits, findings)
    elif model.referee is not None:
        found = check_law(session.engine, session.declaration, model.referee, model.limits, findings)
    else:
        found = []
    for finding, _ in found:
        findings.add(finding)


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

"""What `--oracle-explain` adds to pytest: beside a failure that holds a case, the case in a file, and why it fails."""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from rich.console import Console

from oracle.contract.outcome import EngineReport
from oracle.contract.pytest_support import EngineContract
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.contract.watched import WatchedEngine
from oracle.engines.adapter import EngineAdapter
from oracle.engines.opening import open_engine
from oracle.errors import OracleError
from oracle.explain.explain_engine import explain_engine
from oracle.explain.explain_scenario import explain_scenario
from oracle.explain.explanation import Explanation
from oracle.explain.show import show_explanation
from oracle.scenario import Scenario

SECTION = "oracle: why it fails"
FAILURES = "oracle-failures"
_WIDTH = 110

Locals = dict[str, Any]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Appends the explanation to the report of a test that failed."""
    report = yield
    if report.failed and call.excinfo is not None:
        frames = list(locals_of(call.excinfo.tb))
        text = explained(frames, item.config.rootpath / FAILURES, item.nodeid, item.config.getoption)
        if text is not None:
            report.sections.append((SECTION, text))
    return report


def explained(frames: list[Locals], folder: Path, name: str, option: Callable[[str], Any]) -> str | None:
    """Explains the case that a failed test holds; None where it holds none.

    Args:
        frames: The local variables of every frame, outermost first.
        folder: Where the case is written.
        name: The test.
        option: Gives the value of an option.
    """
    scenario = case_in(frames)
    if scenario is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^0-9A-Za-z]+', '-', name).strip('-')}.json"
    path.write_text(scenario.to_json(), encoding="utf-8")
    command = f"python -m oracle replay {path} --explain"
    try:
        explanation = _explain(scenario, frames, command, option)
    except OracleError as error:
        return f"{error}\nagain: {command}"
    return as_text(explanation)


def _explain(
    scenario: Scenario | EngineScenario, frames: list[Locals], command: str, option: Callable[[str], Any]
) -> Explanation:
    if isinstance(scenario, Scenario):
        return explain_scenario(scenario, command=command)
    name = option("--oracle-engine")
    engine = WatchedEngine(engine_in(frames) or open_engine(name, python=option("--oracle-python")))
    with closing(engine):
        return explain_engine(scenario, EngineSession(engine, engine.declare()), command=f"{command} --engine {name}")


def locals_of(traceback: TracebackType | None) -> Iterator[Locals]:
    """Gives the local variables of each frame of a traceback, outermost first."""
    while traceback is not None:
        yield traceback.tb_frame.f_locals
        traceback = traceback.tb_next


def case_in(frames: list[Locals]) -> Scenario | EngineScenario | None:
    """Gives the case that a failed test holds, the innermost if it holds several."""
    for frame in reversed(frames):
        for value in frame.values():
            if isinstance(value, Scenario | EngineScenario):
                return value
            if isinstance(value, EngineReport):
                failed = [own for own in value.failures if own.finding.check == frame.get("check") and own.scenario]
                if failed:
                    return failed[0].scenario
            if isinstance(getattr(value, "scenario", None), Scenario):
                own: Scenario = value.scenario
                return own
    return None


def engine_in(frames: list[Locals]) -> EngineAdapter | None:
    """Makes the engine that a failed test was about; None where it does not say how."""
    for frame in reversed(frames):
        if isinstance(frame.get("self"), EngineContract):
            contract: EngineContract = frame["self"]
            return contract.make_engine()
        if callable(frame.get("make_engine")):
            engine: EngineAdapter = frame["make_engine"]()
            return engine
    return None


def as_text(explanation: Explanation) -> str:
    """Gives an explanation as a terminal would show it."""
    console = Console(file=StringIO(), width=_WIDTH, no_color=True, force_terminal=False)
    with console.capture() as capture:
        show_explanation(console, explanation)
    return capture.get()

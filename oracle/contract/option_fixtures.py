"""What the plugin's options add to pytest, loaded only when an engine is named: the report of that engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.contract.check_engine import check_engine
from oracle.contract.outcome import EngineReport
from oracle.contract.show import as_json
from oracle.engines.opening import open_engine


@pytest.fixture(scope="session")
def oracle_report(pytestconfig: pytest.Config) -> EngineReport:
    """What was seen of the engine that `--oracle-engine` names."""
    return report_of(pytestconfig.getoption)


def report_of(option: Callable[[str], Any]) -> EngineReport:
    """Judges an engine as options say.

    Args:
        option: Gives the value of one.
    """
    engine = open_engine(option("--oracle-engine"), python=option("--oracle-python"))
    report = check_engine(engine, known=option("--oracle-known"), profile=option("--oracle-profile") or "quick")
    path = option("--oracle-report")
    if path is not None:
        Path(path).write_text(as_json(report), encoding="utf-8")
    return report

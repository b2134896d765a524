"""What the plugin's options add to pytest, loaded only when an engine is named: the report of that engine."""

from pathlib import Path

import pytest

from oracle.contract.check_engine import check_engine
from oracle.contract.outcome import EngineReport
from oracle.contract.show import as_json
from oracle.engines.opening import open_engine


@pytest.fixture(scope="session")
def oracle_report(pytestconfig: pytest.Config) -> EngineReport:
    """What was seen of the engine that `--oracle-engine` names."""
    option = pytestconfig.getoption
    engine = open_engine(option("--oracle-engine"), python=option("--oracle-python"))
    report = check_engine(engine, known=option("--oracle-known"), profile=option("--oracle-profile") or "quick")
    path = option("--oracle-report")
    if path is not None:
        Path(path).write_text(as_json(report), encoding="utf-8")
    return report

"""The contract as a test module for any engine: `pytest --pyargs oracle.suite --oracle-engine NAME`."""

import pytest

from oracle.contract.judging import CHECKS
from oracle.contract.outcome import EngineReport
from oracle.contract.pytest_support import assert_all_met, assert_kept


@pytest.mark.parametrize("check", CHECKS)
def test_engine_keeps(check: str, oracle_report: EngineReport) -> None:
    """The engine that `--oracle-engine` names keeps one check."""
    assert_kept(oracle_report, check)


def test_known_deviations_are_still_there(oracle_report: EngineReport) -> None:
    """Each deviation in the file of `--oracle-known` was met, or it is to be taken out."""
    assert_all_met(oracle_report)

"""Each check becomes a test that passes, fails, is skipped or is expected to fail, as its verdict says."""

import pytest

from oracle.contract import pytest_support
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.judging import CHECKS
from oracle.contract.known import KnownDeviation
from oracle.contract.outcome import EngineFailure, EngineReport
from oracle.contract.pytest_support import EngineContract, assert_kept, parametrize_with_checks
from oracle.contract.scenario import EngineScenario
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest

SCENARIO = EngineScenario((EngineRequest("r0", (1, 2), 3),))
WRONG = Finding("tokens", Kind.WRONG, "token 4 at 0, and 5 was due", "r0")
DEVIATION = KnownDeviation("tokens", "waits for a release")


class NoEngine:
    """Stands for an adapter; nothing is asked of it."""


@pytest.fixture
def report():
    """What was seen of an engine that batches nothing and passed all that it was asked."""
    findings = Findings()
    findings.see("tokens", 3)
    return EngineReport(EngineDeclaration("scripted"), findings=findings)


def test_check_that_passed_is_a_passed_test(report):
    assert_kept(report, "tokens")


def test_check_that_failed_fails_with_the_scenario(report):
    report.failures = [EngineFailure(WRONG, SCENARIO)]
    with pytest.raises(AssertionError, match=r"token 4 at 0, and 5 was due\n\{\n \"engine_scenario\": 1"):
        assert_kept(report, "tokens")


def test_check_that_failed_as_known_is_expected_to_fail(report):
    report.failures = [EngineFailure(WRONG, SCENARIO, known=DEVIATION)]
    with pytest.raises(pytest.xfail.Exception, match="waits for a release"):
        assert_kept(report, "tokens")


def test_check_that_lacks_something_is_skipped_with_the_reason(report):
    with pytest.raises(pytest.skip.Exception, match="it shows none of batching"):
        assert_kept(report, "alone")


def test_check_that_saw_nothing_is_skipped_as_vacuous_or_fails(report):
    with pytest.raises(pytest.skip.Exception, match="vacuous"):
        assert_kept(report, "ends")
    with pytest.raises(AssertionError, match="vacuous"):
        assert_kept(report, "ends", fails_when_vacuous=True)


def test_contract_refuses_a_subclass_without_an_engine():
    with pytest.raises(NotImplementedError, match="EngineContract has no make_engine"):
        EngineContract().make_engine()


def test_contract_asks_each_check_and_for_known_deviations_that_are_gone(report):
    contract = EngineContract()
    contract.test_engine_keeps("tokens", report)
    contract.test_known_deviations_are_still_there(report)
    report.known = {DEVIATION: 0}
    with pytest.raises(AssertionError, match="tokens"):
        contract.test_known_deviations_are_still_there(report)


def test_decorator_makes_one_test_of_each_check_over_one_run(report, monkeypatch):
    calls = []

    def check_engine(engine, **options):
        calls.append((type(engine), options))
        return report

    monkeypatch.setattr(pytest_support, "check_engine", check_engine)
    cases = parametrize_with_checks([NoEngine], profile="quick").args[1]  # type: ignore[list-item]
    assert [case.id for case in cases] == [f"NoEngine-{name}" for name in CHECKS]
    for case in cases:
        make_engine, check = case.values
        if check.name in ("tokens", "form"):
            with pytest.raises(pytest.skip.Exception) if check.name == "form" else pytest.MonkeyPatch.context():
                check(make_engine)
    assert calls == [(NoEngine, {"profile": "quick"})]

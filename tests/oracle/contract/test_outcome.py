"""The verdict of each check follows from what was seen, and the worst of them is the engine's."""

import pytest

from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.judging import CHECKS
from oracle.contract.known import KnownDeviation
from oracle.contract.outcome import CheckVerdict, EngineFailure, EngineReport
from oracle.engines.declaration import EngineDeclaration

WRONG = Finding("tokens", Kind.WRONG, "a token", blame=("top_k",))
KNOWN = KnownDeviation("tokens", "waits")
FULL = EngineDeclaration(
    "full",
    capabilities=("logprobs", "prompt_logprobs", "batching", "aborts"),
    parameters=("temperature", "seed", "n"),
)


@pytest.fixture
def report():
    """What was seen of an engine that was asked everything and gave no cause for complaint."""
    findings = Findings()
    for check in CHECKS:
        findings.see(check, 100)
    for name in FULL.parameters:
        findings.asked[name] = findings.effects[name] = 3
    return EngineReport(FULL, has_other=True, findings=findings)


def verdict_of(report, check):
    """The verdict of one check, with its words."""
    row = next(row for row in report.rows() if row.check == check)
    return row.verdict, row.words


def test_engine_without_a_fault_passes_every_check(report):
    assert {row.verdict for row in report.rows()} == {CheckVerdict.PASS}
    assert report.verdict is CheckVerdict.PASS


def test_failure_fails_its_check_and_the_engine(report):
    report.failures = [EngineFailure(WRONG, None)]
    assert verdict_of(report, "tokens")[0] is CheckVerdict.FAIL
    assert verdict_of(report, "ends")[0] is CheckVerdict.PASS
    assert report.verdict is CheckVerdict.FAIL


def test_known_failure_is_told_apart_and_a_new_one_beside_it_fails(report):
    report.failures = [EngineFailure(WRONG, None, known=KNOWN)]
    report.known = {KNOWN: 1}
    assert report.verdict == CheckVerdict.KNOWN
    report.failures.append(EngineFailure(WRONG, None))
    assert report.verdict is CheckVerdict.FAIL


def test_known_deviation_that_was_not_met_fails_the_engine(report):
    report.known = {KNOWN: 0}
    assert report.unmet == [KNOWN]
    assert report.verdict is CheckVerdict.FAIL


def test_deviation_of_a_check_that_was_not_asked_for_need_not_be_met(report):
    report.known = {KNOWN: 0, KnownDeviation("tokkens", "a slip of the pen"): 0}
    report.asked_checks = ("ends",)
    assert report.unmet == []
    report.asked_checks = None
    assert len(report.unmet) == 2


def test_check_that_judged_nothing_is_vacuous(report):
    report.findings.num_seen["aborts"] = 0
    assert verdict_of(report, "aborts")[0] is CheckVerdict.VACUOUS
    assert report.verdict is CheckVerdict.VACUOUS


def test_parameter_without_effect_makes_effects_vacuous_by_name(report):
    report.findings.effects["seed"] = 0
    assert verdict_of(report, "effects") == (CheckVerdict.VACUOUS, "never seen to act: seed")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("scores", "it shows none of logprobs, top_logprobs, logits"),
        ("samples", "it takes none of seed, n"),
        ("agreement", "nothing was named to agree with"),
    ],
)
def test_check_that_lacks_something_is_skipped_with_the_reason(check, words):
    assert verdict_of(EngineReport(EngineDeclaration("bare")), check) == (CheckVerdict.SKIPPED, words)


def test_checks_that_need_a_reference_are_skipped_without_one(report):
    report.has_referee = False
    skipped = {row.check for row in report.rows() if row.verdict is CheckVerdict.SKIPPED}
    assert skipped == {check for check, content in CHECKS.items() if content.needs_referee}


@pytest.mark.parametrize(("number", "verdict"), [(2, CheckVerdict.PASS), (3, CheckVerdict.FAIL)])
def test_near_ties_may_be_few_and_not_many(report, number, verdict):
    report.findings.found = [Finding("tokens", Kind.ROUNDED, "close")] * number
    assert report.num_near_ties == number
    assert verdict_of(report, "tokens")[0] is verdict


def test_near_ties_may_be_as_many_as_the_references_own_in_half_precision(report):
    """A right engine in bfloat16 takes another token at a few of a hundred places, as the reference does."""
    report.findings.found = [Finding("tokens", Kind.ROUNDED, "close")] * 12
    report.findings.num_reference_ties = 4
    assert verdict_of(report, "tokens")[0] is CheckVerdict.PASS
    report.findings.num_reference_ties = 3
    assert verdict_of(report, "tokens") == (
        CheckVerdict.FAIL,
        "12 of 100 tokens are near ties; at most 9 may be",
    )

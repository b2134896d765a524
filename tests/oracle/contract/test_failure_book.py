"""One failure of each kind is kept: the first, with what ran before it."""

from oracle.contract.failure_book import MAX_FAILURES, FailureBook, signature_of
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.known import KnownDeviation
from oracle.contract.scenario import EngineScenario
from oracle.engines.messages import EngineRequest
from oracle.families import FamilySpec

REQUESTS = (EngineRequest("r0", (1,), 1),)
SCENARIO = EngineScenario(REQUESTS, family=FamilySpec("llama"))


def wrong(check="tokens", *blame):
    """A finding that no rounding explains."""
    return Finding(check, Kind.WRONG, "a token", blame=blame)


def test_first_of_each_kind_is_kept_and_the_others_counted():
    book = FailureBook()
    other = EngineScenario(REQUESTS, {"block_size": 4})
    book.enter(Findings([wrong("tokens", "top_k"), wrong("ends")]), SCENARIO, (REQUESTS,))
    book.enter(Findings([wrong("tokens", "top_k"), Finding("tokens", Kind.ROUNDED, "close")]), other)
    first, second = book.failures
    assert first.scenario is not None
    assert (first.finding.check, first.number, first.scenario.before) == ("tokens", 2, (REQUESTS,))
    assert (second.finding.check, second.number, first.scenario.knobs) == ("ends", 1, {})


def test_families_are_kinds_of_their_own_where_nothing_is_to_blame():
    other = EngineScenario(REQUESTS, family=FamilySpec("qwen2"))
    assert signature_of(wrong(), SCENARIO) != signature_of(wrong(), other)
    assert signature_of(wrong("tokens", "top_k"), SCENARIO) == signature_of(wrong("tokens", "top_k"), other)


def test_checks_that_are_not_wanted_are_left_out():
    book = FailureBook(("ends",))
    book.enter(Findings([wrong("tokens"), wrong("ends")]), SCENARIO)
    assert [failure.finding.check for failure in book.failures] == ["ends"]


def test_regression_known_failure_does_not_hide_a_new_one_of_the_same_kind():
    """One kind of failure had been known as a whole if the first that was met was."""
    known = KnownDeviation("tokens", "waits", blame="top_k", knobs=(("block_size", 4),))
    book = FailureBook(known=(known,))
    small_blocks = EngineScenario(REQUESTS, {"block_size": 4})
    for scenario in (small_blocks, SCENARIO, small_blocks, SCENARIO, SCENARIO):
        book.enter(Findings([wrong("tokens", "top_k")]), scenario)
    assert [(failure.known, failure.number) for failure in book.failures] == [(known, 2), (None, 3)]


def test_regression_first_failure_of_a_check_is_kept_however_many_there_are_of_others():
    """A check whose only failure came after many others had passed."""
    book = FailureBook(known=(KnownDeviation("tokens", "waits", blame="late"),))
    book.enter(Findings([wrong("tokens", str(number)) for number in range(MAX_FAILURES + 5)]), SCENARIO)
    book.enter(Findings([wrong("ends", "one"), wrong("ends", "two"), wrong("tokens", "late")]), SCENARIO)
    assert [failure.finding.blame for failure in book.failures[MAX_FAILURES:]] == [("one",), ("late",)]


def test_kinds_are_kept_up_to_a_number():
    book = FailureBook()
    book.enter(Findings([wrong("tokens", str(number)) for number in range(MAX_FAILURES + 5)]), SCENARIO)
    assert len(book.failures) == MAX_FAILURES

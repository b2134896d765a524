"""Does a failure come again in a fresh engine, and on how small a scenario?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from oracle.contract.failure_book import Signature, signature_of
from oracle.contract.findings import Finding, Findings
from oracle.contract.law_check import check_law
from oracle.contract.minimising import minimise
from oracle.contract.outcome import EngineFailure
from oracle.contract.refusal_check import check_refusals
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.engines.adapter import Refused


def make_all_small(
    session: EngineSession,
    failures: Sequence[EngineFailure],
    seconds: float,
    on_progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Makes failures that are not known small, one after another, within a time that is shared out evenly."""
    open_ones = [failure for failure in failures if failure.is_repeatable is None and failure.known is None]
    end = time.monotonic() + seconds
    for number, failure in enumerate(open_ones):
        now = time.monotonic()
        if failure.scenario is None or not failure.scenario.requests or now >= end:
            continue
        on_progress(f"making a failure of {failure.finding.check} small, {number + 1} of {len(open_ones)}")
        make_small(session, failure, failure.scenario, deadline=now + (end - now) / (len(open_ones) - number))


def make_small(session: EngineSession, failure: EngineFailure, first: EngineScenario, *, deadline: float) -> None:
    """Finds the smallest scenario on which a failure comes in a fresh engine, and tells if there is none."""
    signature = signature_of(failure.finding, first)
    start = None
    for attempt in (replace(first, before=()), first):
        if find_again(session, signature, attempt, fresh=True) is not None:
            start = attempt
            break
    failure.is_repeatable = start is not None
    if start is None:
        return

    def fails(scenario: EngineScenario) -> bool:
        return find_again(session, signature, scenario, fresh=bool(scenario.before)) is not None

    smallest = minimise(start, fails, session.declaration, deadline=deadline)
    found = find_again(session, signature, smallest, fresh=True)
    if found is None:  # the engine was warm from other attempts when it failed there
        smallest, found = start, find_again(session, signature, start, fresh=True)
    failure.scenario, failure.finding = smallest, found or failure.finding


def find_again(
    session: EngineSession, signature: Signature, scenario: EngineScenario, *, fresh: bool
) -> Finding | None:
    """Gives a finding of the same kind on a scenario; None where it does not come."""
    findings = Findings()
    try:
        session.judge(scenario, findings, fresh=fresh)
    except Refused:
        return None
    return next((one for one in findings.wrong() if signature_of(one, scenario)[:2] == signature[:2]), None)


def judge_again(session: EngineSession, scenario: EngineScenario, findings: Findings) -> None:
    """Judges a saved scenario in a fresh engine, as the check that failed on it judges.

    Raises:
        Refused: The engine does not take the model or the settings.
    """
    if scenario.check not in ("refusals", "law"):
        session.judge(scenario, findings, fresh=True)
        return
    # These judge by requests of their own, so the whole check runs again.
    model = session.open(scenario, fresh=True)
    found: Sequence[tuple[Finding, object]] = ()
    if scenario.check == "refusals":
        found = check_refusals(session.engine, session.declaration, model.limits, findings)
    elif model.referee is not None:
        found = check_law(session.engine, session.declaration, model.referee, model.limits, findings)
    for finding, _ in found:
        findings.add(finding)

"""Does a failure come again in a fresh engine, and on how small a scenario?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from oracle.contract.failure_book import Signature, signature_of
from oracle.contract.findings import Finding, Findings
from oracle.contract.law_check import check_law
from oracle.contract.minimising import minimise
from oracle.contract.outcome import EngineFailure
from oracle.contract.refusal_check import check_refusals
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.contract.token_checks import ANOTHER
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

    # Opening it anew for each attempt is slow, and needed only where it was warm from other attempts when it failed.
    for is_always_fresh in (False, True):
        fails = partial(_fails, session, signature, is_always_fresh=is_always_fresh)
        smallest = minimise(start, fails, session.declaration, deadline=deadline)
        found = find_again(session, signature, smallest, fresh=True)
        if found is not None:
            failure.scenario, failure.finding = smallest, found
            return
    failure.scenario = start


def _fails(session: EngineSession, signature: Signature, scenario: EngineScenario, *, is_always_fresh: bool) -> bool:
    is_fresh = is_always_fresh or bool(scenario.before)
    return find_again(session, signature, scenario, fresh=is_fresh) is not None


def find_again(
    session: EngineSession, signature: Signature, scenario: EngineScenario, *, fresh: bool
) -> Finding | None:
    """Gives a finding of the same kind on a scenario; None where it does not come."""
    findings = Findings()
    try:
        session.judge(scenario, findings, fresh=fresh)
    except Refused:
        return None
    return next((one for one in findings.wrong() if _is_alike(one, signature)), None)


def _is_alike(finding: Finding, signature: Signature) -> bool:
    """Tells whether a finding is of the same check and blame.

    That a neighbour's parameters explain a wrong token may be chance, and goes with the neighbour.
    """
    check, blame = signature[:2]
    return finding.check == check and (finding.blame == blame or ANOTHER in blame)


def merged(failures: Sequence[EngineFailure]) -> list[EngineFailure]:
    """Gives each failure once; those that became the same small scenario were one all along."""
    kept: list[EngineFailure] = []
    for failure in failures:
        same = next((own for own in kept if _are_one(own, failure)), None)
        if same is None:
            kept.append(failure)
        else:
            same.number += failure.number
    return kept


def _are_one(one: EngineFailure, other: EngineFailure) -> bool:
    return (
        one.is_repeatable is True
        and one.scenario == other.scenario
        and (one.finding.signature, one.known) == (other.finding.signature, other.known)
    )


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

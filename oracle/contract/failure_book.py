"""Which kinds of failure were met, each with the first scenario that showed it."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from oracle.contract.findings import Finding, Findings
from oracle.contract.known import KnownDeviation, first_cover
from oracle.contract.outcome import EngineFailure
from oracle.contract.scenario import EngineScenario
from oracle.engines.messages import EngineRequest

MAX_FAILURES = 24
"""Kinds of failure that are kept and made small; of more of them, only the first of each check is."""

Signature = tuple[Any, ...]
"""What tells one kind of failure from another."""


def signature_of(finding: Finding, scenario: EngineScenario) -> Signature:
    """Gives what tells a kind of failure from others; where nothing is to blame, the family has to do."""
    family = scenario.family.family if scenario.family is not None and not finding.blame else None
    return (*finding.signature, family)


class FailureBook:
    """Keeps one failure of each kind; what is known is another kind than what is not.

    Args:
        checks: Checks whose findings are kept; None for all.
        known: Deviations that are known.
    """

    def __init__(self, checks: Collection[str] | None = None, known: Sequence[KnownDeviation] = ()) -> None:
        self._checks = checks
        self._known = known
        self._failure_by_signature: dict[Signature, EngineFailure] = {}

    @property
    def failures(self) -> list[EngineFailure]:
        """Each kind once, in the order in which they were met."""
        return list(self._failure_by_signature.values())

    def enter(
        self,
        findings: Findings,
        scenario: EngineScenario,
        history: tuple[tuple[EngineRequest, ...], ...] = (),
        *,
        is_repeatable: bool | None = None,
    ) -> None:
        """Takes in what is wrong among some findings.

        Args:
            findings: What was found.
            scenario: On which scenario.
            history: What had run before in the same engine.
            is_repeatable: Whether it is known to come again in a fresh engine.
        """
        for finding in findings.wrong():
            if self._checks is not None and finding.check not in self._checks:
                continue
            cover = first_cover(self._known, finding, scenario)
            signature = (*signature_of(finding, scenario), cover)
            if signature in self._failure_by_signature:
                self._failure_by_signature[signature].number += 1
            elif self._is_to_be_kept(finding, cover):
                kept = replace(scenario, before=history, check=finding.check)
                failure = EngineFailure(finding, kept, known=cover, is_repeatable=is_repeatable)
                self._failure_by_signature[signature] = failure

    def _is_to_be_kept(self, finding: Finding, cover: KnownDeviation | None) -> bool:
        """Tells whether another kind is kept: none may go under that alone makes a check fail, or a deviation met."""
        kept = self._failure_by_signature.values()
        is_first = all((one.finding.check, one.known) != (finding.check, cover) for one in kept)
        return len(kept) < MAX_FAILURES or is_first

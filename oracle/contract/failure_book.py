"""Which kinds of failure were met, each with the first scenario that showed it."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from oracle.contract.findings import Finding, Findings
from oracle.contract.outcome import EngineFailure
from oracle.contract.scenario import EngineScenario
from oracle.engines.messages import EngineRequest

MAX_FAILURES = 24
"""Kinds of failure that are kept and made small; more of them are only counted."""

Signature = tuple[Any, ...]
"""What tells one kind of failure from another."""


def signature_of(finding: Finding, scenario: EngineScenario) -> Signature:
    """Gives what tells a kind of failure from others; where nothing is to blame, the family has to do."""
    family = scenario.family.family if scenario.family is not None and not finding.blame else None
    return (*finding.signature, family)


class FailureBook:
    """Keeps one failure of each kind.

    Args:
        checks: Checks whose findings are kept; None for all.
    """

    def __init__(self, checks: Collection[str] | None = None) -> None:
        self._checks = checks
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
            signature = signature_of(finding, scenario)
            if signature in self._failure_by_signature:
                self._failure_by_signature[signature].number += 1
            elif len(self._failure_by_signature) < MAX_FAILURES:
                kept = replace(scenario, before=history, check=finding.check)
                self._failure_by_signature[signature] = EngineFailure(finding, kept, is_repeatable=is_repeatable)

"""What was seen of an engine, and the verdict of each check that follows."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from oracle.contract.constructions import Construction
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.judging import CHECKS
from oracle.contract.known import KnownDeviation
from oracle.contract.scenario import EngineScenario
from oracle.engines.declaration import EngineDeclaration
from oracle.tolerances import HALF_NEAR_TIE_FACTOR, MAX_NEAR_TIE_RATE


class CheckVerdict(StrEnum):
    """What a row of the report says."""

    PASS = "pass"
    FAIL = "fail"
    KNOWN = "known"
    """It failed in ways that are known, and in no other."""

    VACUOUS = "vacuous"
    """What it is about never happened."""

    SKIPPED = "skipped"
    """The engine lacks what it needs."""


@dataclass
class EngineFailure:
    """One kind of failure, with the smallest scenario that shows it.

    Attributes:
        finding: What was found, on that scenario.
        scenario: The scenario; None where it is about no single one.
        number: How often it was met.
        known: The deviation that it is known as.
        is_repeatable: Whether it came again when the scenario was run in a fresh engine; None if that was not tried.
    """

    finding: Finding
    scenario: EngineScenario | None
    number: int = 1
    known: KnownDeviation | None = None
    is_repeatable: bool | None = None


@dataclass(frozen=True)
class CheckRow:
    """One row of the report.

    Attributes:
        check: The check's name.
        verdict: What follows.
        num_seen: Things that it judged.
        words: What there is to say: why it was skipped, what is vacuous.
    """

    check: str
    verdict: CheckVerdict
    num_seen: int
    words: str = ""


@dataclass
class EngineReport:
    """What was seen of an engine.

    Attributes:
        declaration: What it says of itself.
        has_referee: Whether tokens could be judged.
        has_other: Whether there was another engine, or a recording, to agree with.
        findings: Everything that checks counted and found.
        failures: Each kind of failure once.
        opened: The ways in which it was opened.
        refused: Those that it did not take, with its words.
        witnesses: What the engine counted.
        num_runs: Scenarios that were judged.
        seconds: How long it all took.
        engine_seconds: Of that, how long the engine took.
        interrupted: Whether somebody ended it.
        known: What was known before, and how often it was met.
        asked_checks: Names of the checks that were asked for; None for all.
    """

    declaration: EngineDeclaration
    has_referee: bool = True
    has_other: bool = False
    findings: Findings = field(default_factory=Findings)
    failures: list[EngineFailure] = field(default_factory=list)
    opened: list[Construction] = field(default_factory=list)
    refused: list[tuple[Construction, str]] = field(default_factory=list)
    witnesses: Counter[str] = field(default_factory=Counter)
    num_runs: int = 0
    seconds: float = 0.0
    engine_seconds: float = 0.0
    interrupted: bool = False
    known: dict[KnownDeviation, int] = field(default_factory=dict)
    asked_checks: tuple[str, ...] | None = None

    @property
    def num_near_ties(self) -> int:
        """Tokens that another token came for, within rounding."""
        return sum(finding.kind is not Kind.WRONG and finding.check == "tokens" for finding in self.findings.found)

    @property
    def max_near_ties(self) -> float:
        """How many of them may be: a small share, or in half precision a multiple of the reference's own."""
        share = MAX_NEAR_TIE_RATE * self.findings.num_seen["tokens"]
        return max(2.0, share, HALF_NEAR_TIE_FACTOR * self.findings.num_reference_ties)

    @property
    def vacuous_parameters(self) -> list[str]:
        """Parameters that were accepted and never showed an effect."""
        return [name for name in self.declaration.parameters if not self.findings.effects[name]]

    @property
    def unmet(self) -> list[KnownDeviation]:
        """Known deviations that were not met: mended, perhaps, so that the file has to be."""
        asked = self.asked_checks
        return [
            deviation
            for deviation, number in self.known.items()
            if not number and (asked is None or deviation.check in asked)
        ]

    def rows(self) -> list[CheckRow]:
        """Gives the verdict of every check."""
        return [self._row(check) for check in CHECKS]

    def _row(self, check: str) -> CheckRow:
        seen = self.findings.num_seen[check] if check != "effects" else sum(self.findings.asked.values())
        failures = [failure for failure in self.failures if failure.finding.check == check]
        if any(failure.known is None for failure in failures):
            return CheckRow(check, CheckVerdict.FAIL, seen)
        if check == "tokens" and self.num_near_ties > self.max_near_ties:
            words = f"{self.num_near_ties} of {seen} tokens are near ties; at most {self.max_near_ties:.0f} may be"
            return CheckRow(check, CheckVerdict.FAIL, seen, words)
        if failures:
            return CheckRow(check, CheckVerdict.KNOWN, seen)
        reason = self._reason_to_skip(check)
        if reason is not None:
            return CheckRow(check, CheckVerdict.SKIPPED, seen, reason)
        if check == "effects" and self.vacuous_parameters:
            words = f"never seen to act: {', '.join(self.vacuous_parameters)}"
            return CheckRow(check, CheckVerdict.VACUOUS, seen, words)
        return CheckRow(check, CheckVerdict.PASS if seen or check == "effects" else CheckVerdict.VACUOUS, seen)

    def _reason_to_skip(self, check: str) -> str | None:
        """Tells what is lacking for a check; None where nothing is."""
        if self.asked_checks is not None and check not in self.asked_checks:
            return "it was not asked for"
        if check == "agreement" and not self.has_other:
            return "nothing was named to agree with"
        return CHECKS[check].reason_to_skip(self.declaration, has_referee=self.has_referee)

    @property
    def verdict(self) -> CheckVerdict:
        """The worst of all rows; a known deviation that was not met is a failure, since files of them are strict."""
        verdicts = {row.verdict for row in self.rows()}
        if CheckVerdict.FAIL in verdicts or self.unmet:
            return CheckVerdict.FAIL
        for verdict in (CheckVerdict.VACUOUS, CheckVerdict.KNOWN):
            if verdict in verdicts:
                return verdict
        return CheckVerdict.PASS

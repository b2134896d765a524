"""What checks found in a run of an engine: wrong, rounded or tied, and how often each saw what it is about."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What a disagreement is."""

    WRONG = "wrong"
    """No rounding explains it."""

    ROUNDED = "rounded"
    """The referee's scores of both sides lie so close together that rounding may decide."""

    TIED = "tied"
    """The referee's scores of both sides are equal."""


@dataclass(frozen=True)
class Finding:
    """One disagreement.

    Attributes:
        check: The check that found it.
        kind: What it is.
        message: What was found and what was due, in one sentence.
        request_id: The request; None where it is about the run as a whole.
        place: The output token, counted from 0; None where it is about none in particular.
        gap: By how much the referee scores what was due above what came.
        bound: Within which gap rounding may decide.
        blame: What makes the difference, as far as it can be told: names of parameters or features.
    """

    check: str
    kind: Kind
    message: str
    request_id: str | None = None
    place: int | None = None
    gap: float | None = None
    bound: float | None = None
    blame: tuple[str, ...] = ()

    @property
    def signature(self) -> tuple[str, tuple[str, ...]]:
        """What tells it apart from other kinds of failure."""
        return self.check, self.blame


@dataclass
class Findings:
    """What all checks found in one trial, and how often each saw what it is about.

    Attributes:
        found: The disagreements.
        num_seen: For each check how many things it judged.
        asked: For each parameter how many answers it was asked for.
        effects: In how many of them it showed.
        num_reference_ties: Greedy tokens for which the reference itself, in the engine's dtype, takes another.
    """

    found: list[Finding] = field(default_factory=list)
    num_seen: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    num_reference_ties: int = 0

    def see(self, check: str, number: int = 1) -> None:
        """Counts things that a check judged."""
        self.num_seen[check] += number

    def add(self, finding: Finding) -> None:
        """Takes in a disagreement."""
        self.found.append(finding)

    def wrong(self) -> list[Finding]:
        """Gives what no rounding explains."""
        return [finding for finding in self.found if finding.kind is Kind.WRONG]

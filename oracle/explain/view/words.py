"""How is a finding said in words? Numbers, places, lists and the headline."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from oracle.explain.clues import Place
from oracle.explain.explanation import Explanation

_WATCHED = {
    True: "The failure came while everything was watched.",
    False: "The failure did not come while everything was watched, so its first signs may be missing here.",
    None: "The run was not watched from inside.",
}
_KINDS = {
    "schedule": "a case of refinfer",
    "symbolic": "a case of refinfer on its symbolic model",
    "engine": "a case of an engine in the dock",
}


class Fact(NamedTuple):
    """One figure with its name.

    Attributes:
        label: What it is.
        text: What a reader sees.
        exact: All digits, where the text has fewer.
    """

    label: str
    text: str
    exact: str | None = None


def number(value: float | None) -> str:
    """Says a number in six digits."""
    if value is None:
        return "unknown"
    if math.isnan(value):
        return "not a number"
    return "infinite" if math.isinf(value) else format(value, ".6g")


def exact(value: float | None) -> str:
    """Says a number with all its digits."""
    return repr(value) if value is not None and math.isfinite(value) else number(value)


def measured(label: str, value: float | None) -> Fact:
    """Names a number."""
    return Fact(label, number(value), exact(value))


def facts_of_place(place: Place) -> list[Fact]:
    """Gives what is known of a place."""
    request = f"{place.request}, sample {place.sample}" if place.sample else str(place.request)
    step = "none: the request by itself" if place.step is None else str(place.step)
    facts = [Fact("step", step), Fact("request", request)]
    facts += [Fact("position", str(place.position))] if place.position is not None else []
    return facts + ([Fact("layer", str(place.layer))] if place.layer is not None else [])


def room_for(names: Iterable[str]) -> int:
    """Gives how many pixels the names of a drawing's lines take up, a little more than the widest letters need."""
    return 26 + round(8.4 * max(map(len, names), default=0))


def listed(names: Iterable[str], *, none: str) -> str:
    """Joins names.

    Args:
        names: The names.
        none: What is said where there are none.
    """
    return ", ".join(names) or none


def headline(explanation: Explanation) -> tuple[str, str]:
    """Says in one sentence of two halves what failed in which subject, and what is to blame."""
    blame = explanation.blame
    failed = f"{explanation.check} fails on {explanation.subject};"
    if blame.component == "unknown":
        return failed, "what is to blame is not known."
    return failed, f"to blame: {blame.component}, {blame.operation}."


def remarks(explanation: Explanation) -> list[str]:
    """Gives what else a reader should know before reading on."""
    failing = sum(check.verdict not in ("pass", "vacuous") for check in explanation.checks)
    counted = f"{failing} of {len(explanation.checks)} verdicts on this case are against the subject."
    kind = _KINDS.get(explanation.kind, explanation.kind)
    return [
        f"It is {kind}.",
        *([counted] if explanation.checks else []),
        _WATCHED[explanation.survives_watching],
        f"Explained in {explanation.seconds:.1f} s.",
    ]

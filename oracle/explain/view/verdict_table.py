"""What did every check say? Verdicts by check and mode, and the messages below."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from oracle.explain.explanation import CheckFigure


@dataclass(frozen=True)
class VerdictTable:
    """Verdicts by check and mode.

    Attributes:
        modes: The columns.
        rows: Of each check, its name and for each mode its verdicts with how often each came.
        messages: What was said where something was found.
    """

    modes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[tuple[str, int], ...], ...]], ...]
    messages: tuple[CheckFigure, ...]


def verdict_table(checks: Sequence[CheckFigure]) -> VerdictTable:
    """Sorts verdicts by check and mode."""
    modes = tuple(dict.fromkeys(check.mode for check in checks))
    rows = []
    for name in dict.fromkeys(check.name for check in checks):
        cells = [
            tuple(Counter(check.verdict for check in checks if (check.name, check.mode) == (name, mode)).items())
            for mode in modes
        ]
        rows.append((name, tuple(cells)))
    return VerdictTable(modes, tuple(rows), tuple(check for check in checks if check.message is not None))

"""What a kill matrix says in figures: how much is caught, how fast, how small, and where; beside the usual rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from oracle.matrix.kills import RULES, SIGHTS, FaultRow

MOST_REQUESTS, MOST_TOKENS = 3, 12
"""A shrunk case within these can be read at a glance."""


@dataclass(frozen=True)
class Summary:
    """The figures of some rows.

    Attributes:
        num_faults: Rows.
        num_caught: Those that some way of looking saw.
        uncaught: The others.
        median_seconds: To the first kill; 0 where nothing was caught.
        slowest: The row whose first kill took longest; None where nothing was caught.
        num_small: Rows whose shrunk case is within 3 requests and 12 tokens.
        num_with_case: Rows that have a case.
        num_located: Rows whose explanation names a file in which the fault sits.
        num_located_first: Those of them in which it is the first file that is named.
        mislocated: Caught rows in which it names none, or others.
        num_by_sight: For each way of looking, how many faults it saw, in the order of the columns.
        num_by_rule: The same for each usual rule.
        num_by_any_rule: How many faults some usual rule saw.
        num_by_sight_alone: For each way, how many faults no other way saw.
        num_unexpected: For each way, how many faults it saw that do not list it among the ways that should see them.
        missing: For each way, the faults that list it and that it did not see.
    """

    num_faults: int
    num_caught: int
    uncaught: tuple[str, ...]
    median_seconds: float
    slowest: FaultRow | None
    num_small: int
    num_with_case: int
    num_located: int
    num_located_first: int
    mislocated: tuple[str, ...]
    num_by_sight: dict[str, int]
    num_by_rule: dict[str, int]
    num_by_any_rule: int
    num_by_sight_alone: dict[str, int]
    num_unexpected: dict[str, int]
    missing: dict[str, tuple[str, ...]]


def summarise(rows: Sequence[FaultRow]) -> Summary:
    """Gives the figures of some rows."""
    caught = [row for row in rows if row.first is not None]
    seconds = [row.first.seconds for row in caught if row.first is not None]
    sizes = [row.size for row in caught if row.size is not None]
    return Summary(
        num_faults=len(rows),
        num_caught=len(caught),
        uncaught=tuple(row.fault for row in rows if row.first is None),
        median_seconds=median(seconds) if seconds else 0.0,
        slowest=max(caught, key=lambda row: row.first.seconds if row.first else 0.0, default=None),
        num_small=sum(
            num_requests <= MOST_REQUESTS and num_tokens <= MOST_TOKENS for num_requests, num_tokens in sizes
        ),
        num_with_case=len(sizes),
        num_located=sum(row.place is not None for row in caught),
        num_located_first=sum(row.place == 0 for row in caught),
        mislocated=tuple(row.fault for row in caught if row.place is None),
        num_by_sight={name: sum(name in row.kills for row in rows) for name in SIGHTS},
        num_by_rule={name: sum(name in row.rule_kills for row in rows) for name in RULES},
        num_by_any_rule=sum(bool(row.rule_kills) for row in rows),
        num_by_sight_alone={name: sum(set(row.kills) == {name} for row in rows) for name in SIGHTS},
        num_unexpected={name: sum(name in row.kills and name not in row.expected for row in rows) for name in SIGHTS},
        missing={
            name: tuple(row.fault for row in rows if name in row.expected and name not in row.kills) for name in SIGHTS
        },
    )

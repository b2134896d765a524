"""What a kill matrix holds: for each fault the first kill of each way of looking, and whether it was located."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from oracle.errors import ScenarioError
from oracle.faults.facts import Sight
from oracle.scenario import Scenario

FORMAT_VERSION = 2

SIGHTS: tuple[str, ...] = get_args(Sight)
"""Our ways of looking, in the order of the columns."""

RULES = ("top-5", "greedy equality", "1e-3", "1e-4")
"""The usual rules, weakest first: every greedy token is among the reference's five best; greedy tokens are the
reference's; no logit of an emitted token is further from the reference's than so much."""


@dataclass(frozen=True)
class Kill:
    """How one way of looking saw a fault first.

    Attributes:
        lane: Where the example came from.
        num_examples: The examples of that lane up to the one that showed it.
        seconds: What they took, everything that was looked at included.
        message: What was said, cut off where it is long.
    """

    lane: str
    num_examples: int
    seconds: float
    message: str


@dataclass(frozen=True)
class Location:
    """What an explanation said of a fault.

    Attributes:
        files: The files it blames, under the repository's root, likeliest first; none where nothing could be explained.
        sentence: Its verdict, or why there is none.
        seconds: What it took.
    """

    files: tuple[str, ...]
    sentence: str
    seconds: float


@dataclass
class FaultRow:
    """One row of the matrix.

    Attributes:
        fault: The fault's switch.
        area: What it breaks.
        sources: The files in which it sits.
        needs: What it needs at once.
        expected: The ways of looking that should see it, as written down beforehand.
        first: The first kill of all, by the seconds of all lanes together, taken in turns on one core.
        kills: The first kill of each way that saw it.
        rule_kills: The same for each usual rule.
        examples: How many examples of each lane were looked at.
        case: The shrunk case; None where the run as a whole shows the fault.
        location: What the explanation of that case said.
    """

    fault: str
    area: str
    sources: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    first: Kill | None = None
    kills: dict[str, Kill] = field(default_factory=dict)
    rule_kills: dict[str, Kill] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)
    case: Scenario | None = None
    location: Location | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """The shrunk case: requests, and prompt and output tokens together."""
        if self.case is None:
            return None
        return len(self.case.requests), self.case.num_tokens

    @property
    def place(self) -> int | None:
        """Which of the files that are blamed is the first in which the fault sits, from 0; None where none is."""
        files = () if self.location is None else self.location.files
        return next((place for place, file in enumerate(files) if file in self.sources), None)

    def to_data(self) -> dict[str, Any]:
        """Gives the row as plain data."""
        data = {name: value for name, value in asdict(self).items() if name != "case"}
        return {**data, "case": None if self.case is None else json.loads(self.case.to_json())}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "FaultRow":
        """Reads a row that `to_data` gave."""
        first, case, location = data["first"], data["case"], data["location"]
        return cls(
            data["fault"],
            data["area"],
            tuple(data["sources"]),
            tuple(data["needs"]),
            tuple(data["expected"]),
            None if first is None else Kill(**first),
            {name: Kill(**kill) for name, kill in data["kills"].items()},
            {name: Kill(**kill) for name, kill in data["rule_kills"].items()},
            dict(data["examples"]),
            None if case is None else Scenario.from_json(json.dumps(case)),
            None if location is None else Location(**{**location, "files": tuple(location["files"])}),
        )


@dataclass(frozen=True)
class KillMatrix:
    """All rows, with what made them.

    Attributes:
        rows: One for each fault.
        settings: What the run was told, for whoever repeats it.
        environment: Versions and threads.
    """

    rows: tuple[FaultRow, ...]
    settings: dict[str, Any]
    environment: dict[str, Any]

    def save(self, path: Path) -> None:
        """Writes the matrix as JSON, a line for each row."""
        head = {"format_version": FORMAT_VERSION, "settings": self.settings, "environment": self.environment}
        rows = ",\n".join(json.dumps(row.to_data(), ensure_ascii=False) for row in self.rows)
        path.write_text(f'{json.dumps(head)[:-1]},\n"rows": [\n{rows}\n]}}\n', encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "KillMatrix":
        """Reads a matrix that `save` wrote.

        Raises:
            ScenarioError: The file holds something else.
        """
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("format_version") != FORMAT_VERSION:
            message = f"{path} has format version {data.get('format_version')!r}; this harness reads {FORMAT_VERSION}"
            raise ScenarioError(message, path=path)
        rows = tuple(FaultRow.from_data(row) for row in data["rows"])
        return cls(rows, data["settings"], data["environment"])

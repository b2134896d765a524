"""What two runs have in common, sample by sample, and where they part first."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from oracle.explain.course import HeatMap
from oracle.explain.view.heat_chart import NOT_A_NUMBER
from oracle.inspection.block_watch import Key, sample_name
from oracle.inspection.likeness import Likeness


class Parting(NamedTuple):
    """Where something differs.

    Attributes:
        likeness: How much.
        steps: The steps of both runs.
        key: Request and sample.
        position: The position.
        name: The module, or what else was compared.
        largest: How far off it is; not a number where only one side is one.
        place: Where the module stands in the order of execution.
    """

    likeness: Likeness
    steps: tuple[int, int]
    key: Key
    position: int
    name: str
    largest: float
    place: int

    @property
    def order(self) -> tuple[int, int, Key, int]:
        """By this the first is found: by the step, then by the order of execution."""
        return (max(self.steps), self.place, self.key, self.position)


class TokenParting(NamedTuple):
    """The first token of a sample that differs.

    Attributes:
        position: Its position.
        output_place: Which of the outputs it is, counted from 0; negative in a prompt.
        token_ids: Both runs' tokens; None where a run has ended before.
        steps: The steps that gave them; None where none did.
    """

    position: int
    output_place: int
    token_ids: tuple[int | None, int | None]
    steps: tuple[int | None, int | None]


@dataclass
class SampleComparison:
    """One sample in both runs.

    Attributes:
        key: Request and sample.
        likeness: By position that ran in both runs behind the same tokens.
        largest: Likewise, the largest difference of all modules; not a number where only one side is one.
        token: The first token that differs; None if none does.
        ends: How it ended in each run; None where it did not.
    """

    key: Key
    likeness: dict[int, Likeness] = field(default_factory=dict)
    largest: dict[int, float] = field(default_factory=dict)
    token: TokenParting | None = None
    ends: tuple[str | None, str | None] = (None, None)

    def count(self, likeness: Likeness) -> int:
        """Gives at how many positions the runs are that much alike."""
        return sum(own is likeness for own in self.likeness.values())


@dataclass(frozen=True)
class RunComparison:
    """Two runs.

    Attributes:
        samples: In the order of requests.
        first_bit: The first bit that differs; None if none does.
        first_other: The first difference that rounding does not explain; None if none is.
    """

    samples: tuple[SampleComparison, ...]
    first_bit: Parting | None
    first_other: Parting | None

    @property
    def is_same(self) -> bool:
        """Whether nothing differs, and something was compared."""
        is_alike = all(own.token is None and own.ends[0] == own.ends[1] for own in self.samples)
        return self.first_bit is None and is_alike and any(own.likeness for own in self.samples)

    @property
    def num_positions(self) -> int:
        """One more than the last position that was compared."""
        return max((1 + max(own.largest, default=-1) for own in self.samples), default=0)

    def heat(self) -> HeatMap:
        """Gives the largest differences, a line for each sample; those that rounding explains are left out."""
        lines = [tuple(_heat(own, position) for position in range(self.num_positions)) for own in self.samples]
        names = tuple(f"request {sample_name(own.key)}" for own in self.samples)
        return HeatMap(0, 0, names, self.num_positions, tuple(lines))

    def near(self) -> list[tuple[int, int, float]]:
        """Gives line, position and size of the differences that rounding explains."""
        return [
            (line, position, own.largest[position])
            for line, own in enumerate(self.samples)
            for position, likeness in own.likeness.items()
            if likeness is Likeness.NEAR
        ]


def _heat(sample: SampleComparison, position: int) -> float | None:
    value, likeness = sample.largest.get(position), sample.likeness.get(position)
    if value is None or likeness is Likeness.NEAR:
        return None
    return value if math.isfinite(value) else NOT_A_NUMBER

"""Where do subject and lone run differ, and by how much? Squares by layer and position, by powers of ten."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from oracle.explain.course import HeatMap
from oracle.explain.explanation import Explanation
from oracle.explain.view.timeline import Mark, SampleKey, marks_of, name_of, prompt_lengths
from oracle.explain.view.words import exact, room_for

CELL, LABEL_ROW = 20, 20
"""Width and height of a square's place and of the line of positions, in pixels."""

NUM_LEVELS = 6
"""Shades and sizes of squares."""

NOT_A_NUMBER = -1.0
"""How a heat map writes it."""

_TICK_EVERY = 5
_SMALLEST, _LARGEST = 5, 18


class Scale(NamedTuple):
    """How a difference becomes a level.

    Attributes:
        edges: Rising powers of ten; level n lies between edges n - 1 and n.
    """

    edges: tuple[float, ...]

    def level(self, value: float) -> int:
        """Gives the level of a difference, from 1; 0 for none at all."""
        if value <= 0:
            return 0
        return next((level for level, edge in enumerate(self.edges[1:], 1) if value <= edge), self.num_levels)

    @property
    def num_levels(self) -> int:
        """How many levels there are."""
        return len(self.edges) - 1

    def size(self, level: int) -> float:
        """Gives how large the square of a level is; what is not a number is as large as can be."""
        share = level / self.num_levels if level else 1.0
        return round(_SMALLEST + (_LARGEST - _SMALLEST) * share, 1)

    def shade(self, level: int) -> int:
        """Spreads the levels of a short scale over all shades."""
        if not level:
            return 0
        if self.num_levels == 1:
            return NUM_LEVELS
        return 1 + round((level - 1) * (NUM_LEVELS - 1) / (self.num_levels - 1))

    @property
    def legend(self) -> list[tuple[int, float, str]]:
        """Of each level its shade, its size and its words."""
        return [
            (self.shade(level), self.size(level), f"{low:g} to {high:g}")
            for level, (low, high) in enumerate(pairwise(self.edges), 1)
        ]


class Square(NamedTuple):
    """One difference that is not zero.

    Attributes:
        x: Left edge.
        y: Upper edge.
        size: Its sides.
        shade: Its shade; 0 for one that is not a number.
        title: The exact value in words.
    """

    x: float
    y: float
    size: float
    shade: int
    title: str


@dataclass(frozen=True)
class HeatChart:
    """The differences of one sample.

    Attributes:
        name: Whose they are.
        width: Width of the drawing.
        height: Its height.
        rows: Of each row, its middle, its short name and its exact values.
        ticks: Middles of columns and the positions there.
        squares: What differs.
        dots: Middles of what is equal.
        border: Between prompt and output; None where it is not known or not shown.
        rings: Upper left corners of what the explanation points at, with words.
        num_positions: Columns.
    """

    name: str
    width: int
    height: int
    rows: tuple[tuple[float, str, tuple[str, ...]], ...]
    ticks: tuple[tuple[float, int], ...]
    squares: tuple[Square, ...]
    dots: tuple[tuple[float, float], ...]
    border: int | None
    rings: tuple[tuple[int, int, str], ...]
    num_positions: int

    @property
    def room(self) -> int:
        """How wide the names of rows are."""
        return room_for([*(name for _, name, _ in self.rows), "position"])


def scale_of(maps: Iterable[HeatMap]) -> Scale:
    """Gives a scale on which every difference has its level."""
    values = [value for own in maps for row in own.differences for value in row if value is not None and value > 0]
    if not values:
        return Scale((0.1, 1.0))
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    stride = math.ceil((high - low) / NUM_LEVELS)
    num = math.ceil((high - low) / stride)
    return Scale(tuple(10.0 ** (high - stride * (num - place)) for place in range(num + 1)))


def heat_charts(explanation: Explanation) -> tuple[Scale, list[HeatChart], list[str]]:
    """Draws every sample that differs; of the others it says in a sentence that they are equal."""
    scale = scale_of(explanation.heat)
    several = {own.request for own in explanation.heat if own.sample}
    lengths = prompt_lengths(explanation.scenario)
    charts, equal = [], []
    for own in explanation.heat:
        name = name_of(SampleKey(own.request, own.sample), has_several=own.request in several)
        values = [value for row in own.differences for value in row if value is not None]
        if any(values):
            num_prompt = lengths[own.request] if own.request < len(lengths) else None
            charts.append(chart_of(name, own, scale, num_prompt, marks_of(explanation)))
        elif values:
            equal.append(f"{name}: each of {len(values)} places that were compared is equal bit for bit")
        else:
            equal.append(f"{name}: nothing could be compared")
    return scale, charts, equal


def words_of(value: float | None) -> str:
    """Says a difference with all its digits."""
    if value is None:
        return "nothing ran"
    return "not a number" if value == NOT_A_NUMBER else exact(value)


def chart_of(
    name: str, own: HeatMap, scale: Scale, num_prompt: int | None = None, marks: Sequence[Mark] = ()
) -> HeatChart:
    """Draws one map.

    Args:
        name: Whose it is.
        own: The differences.
        scale: How they become levels.
        num_prompt: Where its prompt ends; None where that is not known.
        marks: What is pointed at.
    """
    squares, dots = [], []
    for row, (label, values) in enumerate(zip(own.rows, own.differences, strict=True)):
        for position, value in enumerate(values):
            x, y = position * CELL, LABEL_ROW + row * CELL
            if value == 0:
                dots.append((x + CELL / 2, y + CELL / 2))
            elif value is not None:
                title = f"{_short(label)}, position {position}: {words_of(value)}"
                squares.append(_square(x, y, value, scale, title))
    rows = [
        (LABEL_ROW + (row + 0.5) * CELL, _short(label), tuple(map(words_of, values)))
        for row, (label, values) in enumerate(zip(own.rows, own.differences, strict=True))
    ]
    is_border = num_prompt is not None and 0 < num_prompt < own.num_positions
    return HeatChart(
        name=name,
        width=own.num_positions * CELL,
        height=LABEL_ROW + len(own.rows) * CELL,
        rows=tuple(rows),
        ticks=tuple(((place + 0.5) * CELL, place) for place in range(0, own.num_positions, _TICK_EVERY)),
        squares=tuple(squares),
        dots=tuple(dots),
        border=(num_prompt or 0) * CELL if is_border else None,
        rings=tuple(_rings(own, marks)),
        num_positions=own.num_positions,
    )


def _square(x: int, y: int, value: float, scale: Scale, title: str) -> Square:
    level = 0 if value == NOT_A_NUMBER else scale.level(value)
    size = scale.size(level)
    return Square(x + (CELL - size) / 2, y + (CELL - size) / 2, size, scale.shade(level), title)


def _rings(own: HeatMap, marks: Sequence[Mark]) -> Iterable[tuple[int, int, str]]:
    """Frames what the explanation points at, where the map has a row for its layer."""
    for mark in marks:
        place = mark.place
        row = next((row for row, name in enumerate(own.rows) if name.endswith(f"layers.{place.layer}")), None)
        is_here = (place.request, place.sample) == (own.request, own.sample)
        if is_here and row is not None and place.position is not None and place.position < own.num_positions:
            yield place.position * CELL, LABEL_ROW + row * CELL, mark.words


def _short(name: str) -> str:
    return name.removeprefix("model.")

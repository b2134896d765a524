"""Draws a kill matrix: faults down, ways of looking across, darker where fewer examples sufficed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from oracle.matrix.kills import RULES, SIGHTS, FaultRow, Kill, KillMatrix
from oracle.matrix.summary import summarise
from oracle.templates import templates_of

CELL = 15
_LEFT, _TOP, _GAP = 290, 108, 22
_ROOM_FOR_WORDS = 210

SHADES = ((1, "in the first example"), (10, "within 10"), (100, "within 100"), (None, "later"))
"""How many examples each shade stands for, the darkest first."""


@dataclass(frozen=True)
class Mark:
    """One cell.

    Attributes:
        x: Its place across.
        y: Its place down.
        shade: From 1, the darkest; 0 where nothing was seen, though it was expected.
        words: What a pointer that rests on it shows.
    """

    x: int
    y: int
    shade: int
    words: str


@dataclass(frozen=True)
class Line:
    """One row.

    Attributes:
        y: Its place down.
        name: The fault.
        words: Seconds to the first kill, size of the shrunk case, and whether it was located.
        is_caught: Whether any way saw it.
    """

    y: int
    name: str
    words: str
    is_caught: bool


def write_picture(matrix: KillMatrix, path: Path) -> None:
    """Writes the picture as SVG, which needs nothing but itself."""
    path.write_text(picture_of(matrix), encoding="utf-8")


def picture_of(matrix: KillMatrix) -> str:
    """Gives the picture as SVG."""
    columns = {name: _LEFT + place * CELL for place, name in enumerate(SIGHTS)}
    columns |= {name: _LEFT + (len(SIGHTS) + place) * CELL + _GAP for place, name in enumerate(RULES)}
    lines: list[Line] = []
    marks: list[Mark] = []
    areas: list[tuple[int, str]] = []
    y = _TOP
    order = list(dict.fromkeys(row.area for row in matrix.rows))
    rows = sorted(matrix.rows, key=lambda row: order.index(row.area))
    for area, group in groupby(rows, key=lambda row: row.area):
        areas.append((y + CELL - 4, area))
        y += CELL + 3
        for row in group:
            lines.append(Line(y, row.fault, _words(row), row.first is not None))
            marks += _marks(row, columns, y)
            y += CELL
        y += 5
    template = templates_of("oracle.matrix").get_template("matrix.svg")
    summary = summarise(matrix.rows)
    width = _LEFT + (len(SIGHTS) + len(RULES)) * CELL + _GAP + _ROOM_FOR_WORDS
    return template.render(
        columns=columns,
        numbers={**summary.num_by_sight, **summary.num_by_rule},
        lines=lines,
        marks=marks,
        areas=areas,
        summary=summary,
        shades=SHADES,
        CELL=CELL,
        LEFT=_LEFT,
        TOP=_TOP,
        width=width,
        height=y + 2 * CELL,
        bottom=y,
        right=max(columns.values()) + CELL + 8,
        first_rule=columns[RULES[0]],
    )


def _marks(row: FaultRow, columns: dict[str, int], y: int) -> Iterator[Mark]:
    for name, x in columns.items():
        kill = row.kills.get(name) or row.rule_kills.get(name)
        if kill is not None:
            yield Mark(x, y, shade_of(kill), f"{row.fault}, {name}: example {kill.num_examples} of {kill.lane}")
        elif name in row.expected:
            yield Mark(x, y, 0, f"{row.fault}, {name}: expected, and not seen")


def shade_of(kill: Kill) -> int:
    """Gives the shade of a kill, from 1 for the first example."""
    return next(shade for shade, (most, _) in enumerate(SHADES, start=1) if most is None or kill.num_examples <= most)


def _words(row: FaultRow) -> str:
    if row.first is None:
        return "not caught"
    size, location = row.size, row.location
    words = [f"{row.first.seconds:.1f} s"]
    words += [] if size is None else [f"{size[0]} req., {size[1]} tokens"]
    words += [] if location is None else ["not located" if row.place is None else "located"]
    return " · ".join(words)

"""Where does each bar, line and sign of the schedule stand? A drawing of steps × samples, with the blocks below."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oracle.explain.course import Step
from oracle.explain.explanation import Explanation
from oracle.explain.view.timeline import DECODE, Happening, Lane, LaneStep, Mark, lanes_of, marks_of
from oracle.explain.view.words import room_for

COLUMN, LANE, MARK_ROW, TICK_ROW, BLOCK_ROOM = 44, 46, 18, 20, 72
"""Widths and heights, in pixels."""

_GAP, _BAR_TOP, _BAR, _SIGN_TOP, _SIGN = 3, 5, 24, 32, 10
_BLOCK_TOP = 24


class Bar(NamedTuple):
    """A rectangle with a text.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: Width.
        height: Height.
        kind: What it stands for.
        label: What is written on it.
        title: What a pointer is told.
    """

    x: float
    y: float
    width: float
    height: float
    kind: str
    label: str
    title: str


class Stroke(NamedTuple):
    """A line of a sample's life.

    Attributes:
        x: Its left end.
        y: Where it runs.
        width: Its length.
        state: What the sample is meanwhile.
    """

    x: float
    y: float
    width: float
    state: str


class Sign(NamedTuple):
    """A small drawing for something that befell a sample.

    Attributes:
        x: Left edge.
        y: Upper edge.
        kind: Which drawing.
        title: What a pointer is told.
    """

    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True)
class StepChart:
    """The drawing.

    Attributes:
        width: Its width.
        height: Its height.
        top: Where the first lane begins.
        names: Of each lane, its upper edge and its name.
        ticks: Of each step, the middle of its column and its number.
        strokes: The lives of samples.
        bars: What ran.
        signs: What befell samples.
        clues: Columns that the explanation points at; the label stands at the top.
        rings: Frames around the sample in such a column.
        blocks: Used, cached and free blocks.
        blocks_top: Where their part begins; None where there are none.
        most_blocks: Up to which number it reaches.
    """

    width: int
    height: int
    top: int
    names: tuple[tuple[int, str], ...]
    ticks: tuple[tuple[float, int], ...]
    strokes: tuple[Stroke, ...]
    bars: tuple[Bar, ...]
    signs: tuple[Sign, ...]
    clues: tuple[Bar, ...]
    rings: tuple[Bar, ...]
    blocks: tuple[Bar, ...]
    blocks_top: int | None
    most_blocks: int

    @property
    def room(self) -> int:
        """How wide the names of lanes are."""
        return room_for([*(name for _, name in self.names), f"{self.most_blocks} at most"])

    @property
    def kinds(self) -> list[str]:
        """What the legend has to explain, each once."""
        kinds = [*(bar.kind for bar in self.bars), *(sign.kind for sign in self.signs)]
        return list(dict.fromkeys([*kinds, *(stroke.state for stroke in self.strokes)]))


def step_chart(explanation: Explanation) -> StepChart | None:
    """Draws the steps of an explanation; None where it holds none."""
    if not explanation.steps:
        return None
    return chart_of(explanation.steps, lanes_of(explanation), marks_of(explanation))


def chart_of(steps: Sequence[Step], lanes: Sequence[Lane], marks: Sequence[Mark] = ()) -> StepChart:
    """Draws steps.

    Args:
        steps: At least one step.
        lanes: The lives of their samples.
        marks: What is pointed at; a mark without one of the steps is left out.
    """
    column_by_step = {step.number: place * COLUMN for place, step in enumerate(steps)}
    marks = [mark for mark in marks if mark.place.step in column_by_step]
    top = len(marks) * MARK_ROW + TICK_ROW
    y_by_key = {lane.key: top + place * LANE for place, lane in enumerate(lanes)}
    bottom = top + len(lanes) * LANE
    has_blocks = any(step.num_used_blocks is not None for step in steps)
    height = bottom + (_BLOCK_TOP + BLOCK_ROOM + _GAP if has_blocks else 0)
    clues, rings = [], []
    for place, mark in enumerate(marks):
        x = column_by_step[mark.place.step or 0]
        clues.append(Bar(x, place * MARK_ROW, COLUMN, height - place * MARK_ROW, mark.kind, mark.kind, mark.words))
        y = next((own for key, own in y_by_key.items() if key == (mark.place.request, mark.place.sample)), None)
        rings += [] if y is None else [Bar(x + 1, y + 2, COLUMN - 2, _BAR + 6, mark.kind, "", mark.words)]
    most_blocks = max(sum(_counts(step).values()) for step in steps)
    drawn = [part for lane in lanes for part in _lane_parts(lane, y_by_key[lane.key])]
    return StepChart(
        width=len(steps) * COLUMN,
        height=height,
        top=top,
        names=tuple((y_by_key[lane.key], lane.name) for lane in lanes),
        ticks=tuple((x + COLUMN / 2, number) for number, x in column_by_step.items()),
        strokes=tuple(part for part in drawn if isinstance(part, Stroke)),
        bars=tuple(part for part in drawn if isinstance(part, Bar)),
        signs=tuple(part for part in drawn if isinstance(part, Sign)),
        clues=tuple(clues),
        rings=tuple(rings),
        blocks=tuple(bar for step in steps for bar in _block_bars(step, column_by_step, height, most_blocks)),
        blocks_top=bottom + _BLOCK_TOP if has_blocks else None,
        most_blocks=most_blocks,
    )


def words_of(own: LaneStep, name: str) -> str:
    """Says what a sample did in a step."""
    parts = [happening.words for happening in own.before]
    if own.row is not None:
        row = own.row
        guessed = f", {row.num_guessed} of them guessed" if row.num_guessed else ""
        emitted = f", emits {' '.join(map(str, row.token_ids))}" if row.token_ids else ""
        parts.append(f"{own.kind} of {row.num_tokens} tokens from position {row.start}{guessed}{emitted}")
    parts += [happening.words for happening in own.after]
    return f"step {own.step}, {name}: {'; '.join(parts or [str(own.state)])}"


def _lane_parts(lane: Lane, y: int) -> list[Stroke | Bar | Sign]:
    parts: list[Stroke | Bar | Sign] = []
    for place, own in enumerate(lane.steps):
        x, title = place * COLUMN, words_of(own, lane.name)
        if own.state is not None:
            parts.append(Stroke(x, y + _BAR_TOP + _BAR / 2, COLUMN, own.state))
        if own.row is not None and own.kind is not None:
            inset = 4 if own.kind == DECODE else 0
            label = str(own.row.num_tokens - own.row.num_guessed)
            label += f"+{own.row.num_guessed}" if own.row.num_guessed else ""
            width, height = COLUMN - 2 * _GAP, _BAR - 2 * inset
            parts.append(Bar(x + _GAP, y + _BAR_TOP + inset, width, height, own.kind, label, title))
        parts += [
            Sign(x + _GAP + 1 + place * (_SIGN + 1), y + _SIGN_TOP, _sign(happening), title)
            for place, happening in enumerate(own.before)
        ]
        parts += [
            Sign(x + COLUMN - _GAP - 1 - _SIGN, y + _SIGN_TOP, _sign(happening), title) for happening in own.after[:1]
        ]
    return parts


def _sign(happening: Happening) -> str:
    return "swapped out" if happening == ("preempted", "swap") else happening.kind


def _counts(step: Step) -> dict[str, int]:
    return {
        "used": step.num_used_blocks or 0,
        "cached": step.num_cached_blocks or 0,
        "free": step.num_free_blocks or 0,
    }


def _block_bars(step: Step, column_by_step: dict[int, int], bottom: int, most: int) -> list[Bar]:
    if step.num_used_blocks is None:
        return []
    counts = _counts(step)
    title = f"step {step.number}: " + ", ".join(f"{number} {kind}" for kind, number in counts.items()) + " blocks"
    bars, y = [], float(bottom - _GAP)
    for kind, number in counts.items():
        height = BLOCK_ROOM * number / most if most else 0.0
        y -= height
        if number:
            label = str(number) if height >= 14 else ""  # noqa: PLR2004 - the height of the letters
            x = column_by_step[step.number] + _GAP
            bars.append(Bar(x, round(y, 2), COLUMN - 2 * _GAP, round(height, 2), kind, label, title))
    return bars

"""Where does each bar of the block map stand? Blocks down, steps across, one bar for as long as its holders stay."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from oracle.explain.view.words import room_for
from oracle.inspection.block_watch import BlockState, BlockWatch, Key, Moment, sample_name

COLUMN, ROW, TICK_ROW, GAP = 36, 24, 20, 14
"""Widths and heights, in pixels."""

NUM_HUES = 8
"""Colours of requests; the ninth request has the first one's again, and its own name."""

_TICK_EVERY = 5
_ROOM_OF_A_LETTER = 7.4


class BlockBar(NamedTuple):
    """A block, or room in host memory, for some steps.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: Width.
        hue: The colour of the request, from 1; 0 for a block that only the prefix map keeps.
        is_shared: Whether several references count, the prefix map's not among them.
        is_pinned: Whether the prefix map finds it.
        label: Who holds it, as far as there is room.
        title: The same in full.
    """

    x: int
    y: int
    width: int
    hue: int
    is_shared: bool
    is_pinned: bool
    label: str
    title: str


@dataclass(frozen=True)
class BlockChart:
    """The drawing.

    Attributes:
        width: Its width.
        height: Its height.
        names: Of each line, its upper edge and its name.
        ticks: Middles of columns and the steps there.
        bars: What is held.
        writes: Left and lower edges of columns in which something is written to a block.
        requests: Of each request that holds something, its number and its colour.
        num_unused: Blocks that are left out, since nobody ever held them.
    """

    width: int
    height: int
    names: tuple[tuple[int, str], ...]
    ticks: tuple[tuple[float, int], ...]
    bars: tuple[BlockBar, ...]
    writes: tuple[tuple[int, int], ...]
    requests: tuple[tuple[int, int], ...]
    num_unused: int

    @property
    def room(self) -> int:
        """How wide the names of lines are."""
        return room_for([*(name for _, name in self.names), "step"])


def block_chart(blocks: BlockWatch, most_steps: int | None = None) -> BlockChart:
    """Draws what became of a pool.

    Args:
        blocks: What was seen of it.
        most_steps: How many of the first steps are drawn; None for all.
    """
    moments = blocks.moments[:most_steps]
    used = [
        block_id
        for block_id in range(blocks.num_blocks)
        if any(not moment.blocks[block_id].is_free for moment in moments)
    ]
    hosted = sorted({key for moment in moments for key in moment.host})
    y_by_block = {block_id: TICK_ROW + place * ROW for place, block_id in enumerate(used)}
    top_of_host = TICK_ROW + len(used) * ROW + GAP
    y_by_host = {key: top_of_host + place * ROW for place, key in enumerate(hosted)}
    bars = [bar for block_id, y in y_by_block.items() for bar in _bars(moments, block_id, y)]
    bars += [bar for key, y in y_by_host.items() for bar in _host_bars(moments, key, y)]
    requests = sorted({key[0] for moment in moments for own in moment.blocks for key in own.holders})
    return BlockChart(
        width=len(moments) * COLUMN,
        height=top_of_host + len(hosted) * ROW if hosted else top_of_host - GAP,
        names=(
            *((y, f"block {block_id}") for block_id, y in y_by_block.items()),
            *((y, f"host, {sample_name(key)}") for key, y in y_by_host.items()),
        ),
        ticks=tuple(((step + 0.5) * COLUMN, step) for step in range(0, len(moments), _TICK_EVERY)),
        bars=tuple(bars),
        writes=tuple(_writes(moments, y_by_block)),
        requests=tuple((request, hue_of(request)) for request in requests),
        num_unused=blocks.num_blocks - len(used),
    )


def hue_of(request: int) -> int:
    """Gives the colour of a request."""
    return 1 + request % NUM_HUES


def _bars(moments: Sequence[Moment], block_id: int, y: int) -> Iterator[BlockBar]:
    states = enumerate(moment.blocks[block_id] for moment in moments)
    for look, group in groupby(states, key=lambda own: (own[1].holders, own[1].published is not None)):
        run = list(group)
        first, state = run[0]
        if state.is_free:
            continue
        width = len(run) * COLUMN
        owner, is_pinned = look
        words = "+".join(map(sample_name, owner)) or "kept"
        title = f"block {block_id}, {_steps(first, first + len(run) - 1)}: {_words(state)}"
        hue = hue_of(owner[0][0]) if owner else 0
        is_room = len(words) * _ROOM_OF_A_LETTER <= width - 6
        label = words if is_room else f"×{len(owner)}" if len(owner) > 1 else ""
        yield BlockBar(first * COLUMN, y, width, hue, len(owner) > 1, is_pinned, label, title)


def _host_bars(moments: Sequence[Moment], key: Key, y: int) -> Iterator[BlockBar]:
    numbers = enumerate(moment.host.get(key, 0) for moment in moments)
    for number, group in groupby(numbers, key=lambda own: own[1]):
        run = list(group)
        if number:
            first, width = run[0][0], len(run) * COLUMN
            title = f"{_steps(first, first + len(run) - 1)}: {sample_name(key)} has {number} blocks in host memory"
            yield BlockBar(first * COLUMN, y, width, hue_of(key[0]), False, False, str(number), title)  # noqa: FBT003


def _writes(moments: Sequence[Moment], y_by_block: dict[int, int]) -> Iterator[tuple[int, int]]:
    for step, moment in enumerate(moments):
        for block_id, y in y_by_block.items():
            if any(own is not None and own.step == step for own in moment.blocks[block_id].slots):
                yield step * COLUMN, y + ROW


def _words(state: BlockState) -> str:
    held = f"held by {', '.join(map(sample_name, state.holders))}" if state.holders else "held by no request"
    if state.published is None:
        return held
    return f"{held}; the prefix map finds it under {' '.join(map(str, state.published))}"


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"

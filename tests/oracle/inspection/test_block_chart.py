"""Bars lie inside the drawing, none over another, and each stands for what its block was."""

from itertools import pairwise

from oracle.inspection.block_chart import COLUMN, ROW, TICK_ROW, block_chart, hue_of


def test_bars_lie_within_the_drawing_and_never_over_each_other(seen):
    chart = block_chart(seen.blocks)
    for bar in chart.bars:
        assert 0 <= bar.x < bar.x + bar.width <= chart.width
        assert TICK_ROW <= bar.y < bar.y + ROW <= chart.height
    by_line = {y: sorted(bar.x for bar in chart.bars if bar.y == y) for y, _ in chart.names}
    ends = {(bar.y, bar.x): bar.x + bar.width for bar in chart.bars}
    assert all(ends[y, one] <= other for y, own in by_line.items() for one, other in pairwise(own))


def test_columns_say_who_held_a_block(seen):
    chart = block_chart(seen.blocks)
    y = next(y for y, name in chart.names if name == "block 0")
    bars = [bar for bar in chart.bars if bar.y == y]
    covered = {step: bar for bar in bars for step in range(bar.x // COLUMN, (bar.x + bar.width) // COLUMN)}
    assert sorted(covered) == list(range(7))
    for step, bar in covered.items():
        state = seen.blocks.moments[step].blocks[0]
        assert bar.is_shared == (len(state.holders) > 1)
        assert bar.is_pinned == (state.published is not None)
        assert bar.hue == (hue_of(state.holders[0][0]) if state.holders else 0)
    assert covered[2].label == "×3"
    assert "held by 0/0, 0/1, 1/0" in covered[2].title


def test_blocks_that_nobody_held_are_left_out_and_counted(seen):
    chart = block_chart(seen.blocks)
    names = [name for _, name in chart.names if name.startswith("block")]
    assert len(names) + chart.num_unused == seen.blocks.num_blocks
    assert chart.num_unused == 12


def test_host_memory_has_lines_of_its_own(seen):
    chart = block_chart(seen.blocks)
    y = next(y for y, name in chart.names if name == "host, 1/0")
    assert [(bar.x // COLUMN, bar.width // COLUMN, bar.label) for bar in chart.bars if bar.y == y] == [(3, 2, "3")]


def test_writes_are_marked_where_they_were(seen):
    chart = block_chart(seen.blocks)
    marked = {(x // COLUMN, y - ROW) for x, y in chart.writes}
    y_by_block = {int(name.split()[1]): y for y, name in chart.names if name.startswith("block")}
    written = {(event.step, y_by_block[event.block_id]) for event in seen.blocks.events if event.words[:7] == "written"}
    assert marked == written


def test_requests_share_a_colour_only_past_the_last_one():
    assert len({hue_of(request) for request in range(8)}) == 8
    assert hue_of(8) == hue_of(0) != 0

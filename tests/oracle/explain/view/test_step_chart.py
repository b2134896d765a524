"""Each thing that happened has its place in the drawing, and nothing lies outside it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.explain.clues import Place
from oracle.explain.view.step_chart import BLOCK_ROOM, COLUMN, LANE, chart_of, step_chart
from oracle.explain.view.timeline import lanes_in

FEW = settings(max_examples=max(5, settings().max_examples // 5), deadline=None)


def drawn(explanation):
    """The drawing of an explanation with steps."""
    chart = step_chart(explanation)
    assert chart is not None
    return chart


@FEW
@given(st.data())
def test_everything_lies_within_the_drawing(explanations, data):
    chart = step_chart(data.draw(explanations))
    if chart is None:
        return
    for own in (*chart.bars, *chart.blocks, *chart.clues, *chart.rings):
        assert 0 <= own.x <= own.x + own.width <= chart.width
        assert 0 <= own.y <= own.y + own.height <= chart.height


def test_bars_tell_how_many_tokens_ran(whole):
    chart = drawn(whole)
    assert [(bar.x // COLUMN, (bar.y - chart.top) // LANE, bar.kind, bar.label) for bar in chart.bars] == [
        (0, 0, "prefill", "3"),
        (2, 0, "decode", "1+2"),
        (3, 0, "decode", "1"),
        (2, 1, "prefill", "1"),
        (2, 2, "prefill", "2"),
    ]
    heights = {bar.kind: bar.height for bar in chart.bars}
    assert heights["decode"] < heights["prefill"], "told apart without colour"


def test_signs_tell_what_befell_whom(whole):
    chart = drawn(whole)
    found = {(sign.x // COLUMN, (sign.y - chart.top) // LANE, sign.kind) for sign in chart.signs}
    assert (1, 0, "swapped out") in found
    assert (2, 0, "swapped in") in found
    assert (3, 0, "finished") in found
    assert (3, 1, "aborted") in found
    assert (0, 2, "arrived") in found


def test_recompute_has_another_sign_than_swap(whole):
    step = replace(whole.steps[1], preempted=("0/0 recompute",))
    chart = drawn(replace(whole, steps=(whole.steps[0], step)))
    assert "preempted" in {sign.kind for sign in chart.signs}
    assert "swapped out" not in {sign.kind for sign in chart.signs}


def test_clues_mark_the_step_and_the_sample(whole):
    chart = drawn(whole)
    assert [(clue.label, clue.x // COLUMN) for clue in chart.clues] == [("write", 0), ("read", 2), ("token", 2)]
    assert [(ring.kind, (ring.y - chart.top) // LANE) for ring in chart.rings] == [
        ("write", 0),
        ("read", 0),
        ("token", 0),
    ]


def test_clue_without_a_step_marks_nothing(whole):
    token = replace(whole.token, place=Place(None, 0))
    assert [clue.label for clue in drawn(replace(whole, token=token)).clues] == ["write", "read"]


def test_heights_of_blocks_are_their_numbers(whole):
    chart = drawn(whole)
    assert chart.most_blocks == 4
    per_block = {round(bar.height / int(bar.label), 6) for bar in chart.blocks if bar.label}
    assert per_block == {BLOCK_ROOM / 4}
    counted = [(bar.x // COLUMN, bar.kind) for bar in chart.blocks]
    assert counted == [(0, "used"), (0, "free"), (1, "cached"), (1, "free"), (2, "used"), (3, "used")]


def test_subject_without_blocks_has_no_part_for_them(whole):
    steps = tuple(replace(step, num_used_blocks=None) for step in whole.steps)
    chart = drawn(replace(whole, steps=steps))
    assert chart.blocks_top is None
    assert chart.blocks == ()
    assert chart.height < drawn(whole).height


def test_no_steps_give_no_drawing(bare):
    assert step_chart(bare) is None


@pytest.mark.parametrize("kind", ["prefill", "decode", "swapped in", "running", "preempted", "waiting"])
def test_legend_explains_each_kind_that_is_shown(whole, kind):
    assert drawn(whole).kinds.count(kind) == 1


def test_steps_are_drawn_without_an_explanation(whole):
    own, chart = chart_of(whole.steps, lanes_in(whole.steps, [3, 2])), drawn(whole)
    assert own.clues == ()
    assert own.top < chart.top, "no line is kept for marks"
    places = [[(bar.x, bar.y - each.top, bar.label) for bar in each.bars] for each in (own, chart)]
    assert places[0] == places[1] != []

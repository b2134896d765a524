"""Every difference has its place, its size and its exact value; what is equal, and what did not run, look otherwise."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.explain.course import HeatMap
from oracle.explain.view.heat_chart import CELL, LABEL_ROW, NUM_LEVELS, heat_charts, scale_of, words_of


def map_of(*values):
    """A map of one row."""
    return HeatMap(0, 0, ("row",), len(values), (values,))


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=5))
def test_scale_has_a_level_for_every_difference(values):
    scale = scale_of([map_of(*values)])
    assert 1 <= scale.num_levels <= NUM_LEVELS
    assert list(scale.edges) == sorted(scale.edges)
    for value in values:
        level = scale.level(value)
        assert 1 <= level <= scale.num_levels
        assert scale.edges[level - 1] * (1 - 1e-9) <= value <= scale.edges[level] * (1 + 1e-9)


def test_scale_rises_in_powers_of_ten():
    scale = scale_of([map_of(2e-7, 0.0, None, -1.0, 3.0)])
    assert all(math.isclose(math.log10(edge), round(math.log10(edge)), abs_tol=1e-9) for edge in scale.edges)
    levels = [scale.level(value) for value in (0.0, 2e-7, 1e-3, 3.0)]
    assert levels == sorted(set(levels))
    sizes = [size for _, size, _ in scale.legend]
    shades = [shade for shade, _, _ in scale.legend]
    assert sizes == sorted(set(sizes)), "told apart without colour"
    assert shades == sorted(set(shades))
    assert (shades[0], shades[-1]) == (1, NUM_LEVELS)


def test_scale_of_nothing_has_one_level():
    assert scale_of([map_of(0.0, None, -1.0)]).num_levels == 1


def test_squares_stand_where_the_values_do(whole):
    _, (chart,), _ = heat_charts(whole)
    assert chart.name == "request 0"
    places = [(own.x // CELL, (own.y - LABEL_ROW) // CELL, own.shade == 0, own.title) for own in chart.squares]
    assert places == [
        (1, 1, False, "layers.0, position 1: 3.5e-07"),
        (2, 1, True, "layers.0, position 2: not a number"),
        (2, 2, False, "lm_head, position 2: 2.5"),
        (3, 2, False, "lm_head, position 3: 0.125"),
    ]
    small, _, large, middle = (own.size for own in chart.squares)
    assert small < middle <= large
    assert len(chart.dots) == 5


def test_chart_marks_the_end_of_the_prompt_and_what_the_explanation_points_at(whole):
    _, (chart,), _ = heat_charts(whole)
    assert chart.border == 3 * CELL
    assert chart.rings == (
        (CELL, LABEL_ROW + CELL, "first differing write"),
        (CELL, LABEL_ROW + CELL, "first differing read"),
    )
    _, (unknown,), _ = heat_charts(replace(whole, scenario={}))
    assert unknown.border is None


def test_what_is_equal_everywhere_is_said_in_a_sentence(whole):
    _, charts, equal = heat_charts(whole)
    assert len(charts) == 1
    assert equal == ["request 1: each of 3 places that were compared is equal bit for bit"]
    empty = HeatMap(0, 1, ("row",), 2, ((None, None),))
    _, _, equal = heat_charts(replace(whole, heat=(empty,)))
    assert equal == ["request 0, sample 1: nothing could be compared"]


def test_explanation_without_differences_has_no_charts(bare):
    assert heat_charts(bare)[1:] == ([], [])


@pytest.mark.parametrize(
    ("value", "words"), [(None, "nothing ran"), (-1.0, "not a number"), (0.1, "0.1"), (1e-9, "1e-09"), (0.0, "0.0")]
)
def test_value_is_said_with_all_its_digits(value, words):
    assert words_of(value) == words

"""What was compared is counted, and drawn so that rounding never looks like a fault."""

from math import inf, nan

from oracle.explain.view.heat_chart import NOT_A_NUMBER
from oracle.inspection.likeness import Likeness
from oracle.inspection.run_comparison import Parting, RunComparison, SampleComparison, TokenParting

BITS, NEAR, OTHER = Likeness
SAMPLE = SampleComparison(
    (1, 0),
    likeness={2: BITS, 3: NEAR, 4: OTHER, 5: OTHER, 6: OTHER},
    largest={2: 0.0, 3: 1e-7, 4: 0.5, 5: nan, 6: inf},
)


def test_positions_are_counted_by_likeness():
    assert [SAMPLE.count(own) for own in Likeness] == [1, 1, 3]


def test_heat_leaves_rounding_out_and_near_has_it():
    found = RunComparison((SampleComparison((0, 0)), SAMPLE), None, None)
    heat = found.heat()
    assert heat.rows == ("request 0/0", "request 1/0")
    assert heat.differences == ((None,) * 7, (None, None, 0.0, None, 0.5, NOT_A_NUMBER, NOT_A_NUMBER))
    assert found.near() == [(1, 3, 1e-7)]


def test_only_what_was_compared_and_agrees_is_the_same():
    alike = SampleComparison((0, 0), likeness={0: BITS}, largest={0: 0.0}, ends=("length", "length"))
    assert RunComparison((alike,), None, None).is_same
    parting = Parting(NEAR, (0, 0), (0, 0), 0, "lm_head", 1e-7, 0)
    token = TokenParting(1, 0, (1, None), (0, None))
    for sample, first in (
        (SampleComparison((0, 0)), None),
        (alike, parting),
        (SampleComparison((0, 0), {0: BITS}, {0: 0.0}, token), None),
        (SampleComparison((0, 0), {0: BITS}, {0: 0.0}, None, ("stop", "length")), None),
    ):
        assert not RunComparison((sample,), first, None).is_same


def test_first_parting_is_by_step_then_by_the_order_of_execution():
    early = Parting(OTHER, (1, 1), (2, 0), 9, "lm_head", 1.0, 30)
    inner = Parting(OTHER, (2, 1), (1, 0), 3, "q_proj", 1.0, 4)
    outer = Parting(OTHER, (2, 2), (0, 0), 0, "lm_head", 1.0, 30)
    assert sorted([outer, inner, early], key=lambda own: own.order) == [early, inner, outer]

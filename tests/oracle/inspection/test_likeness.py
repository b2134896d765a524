"""Bits, rounding and other values are told apart, also where a side is no number or of another shape."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracle.inspection.likeness import NEAR_IN_EPS, Likeness, larger, likenesses

EPS = torch.finfo(torch.float32).eps
NAN, INF = math.nan, math.inf


def found(one, other, eps=EPS):
    """What differs between two lists of rows."""
    return [(place, likeness) for place, _, likeness in likenesses(torch.tensor(one), torch.tensor(other), eps)]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([[1.0, 2.0]], [[1.0, 2.0]], []),
        ([[1.0], [2.0]], [[1.0], [3.0]], [(1, Likeness.OTHER)]),
        ([[1.0], [8.0]], [[1.0 + 2 * EPS], [8.0]], [(0, Likeness.NEAR)]),
        ([[NAN], [1.0]], [[NAN], [1.0]], []),
        ([[NAN], [1.0]], [[2.0], [1.0]], [(0, Likeness.OTHER)]),
        ([[INF], [1.0]], [[INF], [2.0]], [(1, Likeness.OTHER)]),
        ([[NAN]], [[NAN]], []),
        ([[1.0], [2.0]], [[1.0]], []),
        ([[1.0]], [[1.0, 2.0]], [(0, Likeness.OTHER)]),
        ([], [], []),
    ],
)
def test_likeness_of_rows(one, other, expected):
    assert found(one, other) == expected


def test_whole_numbers_are_never_near():
    assert found([1000000], [1000001]) == [(0, Likeness.OTHER)]


def test_nothing_is_near_where_nothing_is_rounded():
    assert found([1.0, 1.0], [1.0, 1.0 + EPS], eps=0.0) == [(1, Likeness.OTHER)]


@given(st.floats(1, 1e6), st.floats(0, 2 * NEAR_IN_EPS))
def test_near_ends_at_its_bound(size, units):
    one = torch.tensor([[size]], dtype=torch.float64)
    other = one + units * EPS * one
    gap = float((one - other).abs())
    expected = Likeness.NEAR if gap <= NEAR_IN_EPS * EPS * float(other) else Likeness.OTHER
    assert [own for _, _, own in likenesses(one, other, EPS)] == ([expected] if gap else [])


def test_what_is_no_number_is_largest():
    assert math.isnan(larger(NAN, 1.0))
    assert math.isnan(larger(1.0, NAN))
    assert larger(2.0, 1.0) == larger(1.0, 2.0) == 2.0

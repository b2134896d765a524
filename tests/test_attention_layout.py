"""Which keys a query may look at, against the definition written out column by column."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.attention_layout import KEY_TILE, AttentionLayout, whole_tiles
from refinfer.errors import ShapeError


@st.composite
def layouts(draw):
    """Rectangles of every kind, most of them small; a row is all padding up to its last column at most."""
    num_keys = draw(st.one_of(st.integers(1, 9), st.integers(60, 70)), label="keys")
    num_queries = draw(st.integers(1, num_keys), label="queries")
    paddings = st.lists(st.integers(0, num_keys - 1), min_size=1, max_size=3)
    return AttentionLayout(num_queries, num_keys, tuple(draw(paddings, label="padding")))


def is_visible(layout, row, column, key_column):
    """The definition: a token looks at the tokens of its row up to itself, padding at itself."""
    padding = layout.num_padding_tokens[row]
    if column < padding:
        return key_column == column
    return padding <= key_column <= column


@settings(deadline=None)
@given(layout=layouts())
def test_mask_is_true_where_the_definition_says_so(layout):
    columns = range(layout.num_keys - layout.num_queries, layout.num_keys)
    expected = [
        [[[is_visible(layout, row, column, key) for key in range(layout.num_keys)] for column in columns]]
        for row in range(len(layout.num_padding_tokens))
    ]
    assert layout.mask.dtype is torch.bool
    assert layout.mask.tolist() == expected


@settings(deadline=None)
@given(layout=layouts())
def test_visible_ends_are_one_past_each_querys_own_column(layout):
    columns = range(layout.num_keys - layout.num_queries, layout.num_keys)
    assert list(layout.visible_ends) == [column + 1 for column in columns]


@settings(deadline=None)
@given(layout=layouts())
def test_mask_is_needed_unless_causal_or_full_says_the_same(layout):
    """Without a mask one query looks at all keys, several look as a triangle that begins at the first key."""
    num_queries, num_keys = layout.num_queries, layout.num_keys
    without = torch.ones(num_queries, num_keys, dtype=torch.bool)
    if num_queries > 1:
        without = without.tril()
    says_the_same = torch.equal(layout.mask, without.expand_as(layout.mask))
    assert layout.needs_mask == (not says_the_same)


@settings(deadline=None)
@given(missing=st.lists(st.integers(0, 4), min_size=1, max_size=4), num_more=st.integers(1, 70))
def test_rows_that_end_early_look_at_their_own_keys(missing, num_more):
    num_keys = max(missing) + num_more
    layout = AttentionLayout(1, num_keys, (0,) * len(missing), tuple(missing))
    expected = [[[[key < num_keys - own for key in range(num_keys)]]] for own in missing]
    assert layout.mask.tolist() == expected
    assert layout.needs_mask == any(missing)


@pytest.mark.parametrize(("num_queries", "missing"), [(1, (-1,)), (1, (0, 3)), (2, (0, 1))])
def test_layout_refuses_rows_that_end_where_no_query_can_stand(num_queries, missing):
    with pytest.raises(ShapeError, match=f"of 3 keys cannot run {num_queries} queries") as caught:
        AttentionLayout(num_queries, 3, (0,) * len(missing), missing)
    assert caught.value.num_missing_tokens == missing


def test_layout_is_of_one_row_without_padding_unless_told_otherwise():
    assert AttentionLayout(2, 5) == AttentionLayout(2, 5, (0,), (0,))
    assert AttentionLayout(2, 5).mask.shape == (1, 1, 2, 5)


@pytest.mark.parametrize(("num_queries", "num_keys"), [(0, 0), (0, 3), (-1, 3), (4, 3), (1, 0), (1, -1)])
def test_layout_refuses_queries_without_a_key_of_their_own(num_queries, num_keys):
    with pytest.raises(ShapeError, match=f"{num_queries} queries cannot be the last of {num_keys} keys") as caught:
        AttentionLayout(num_queries, num_keys)
    assert (caught.value.num_queries, caught.value.num_keys) == (num_queries, num_keys)


@pytest.mark.parametrize(
    ("num_keys", "expected"), [(0, 0), (1, 64), (63, 64), (64, 64), (65, 128), (128, 128), (129, 192)]
)
def test_whole_tiles_rounds_up_to_a_multiple_of_the_tile(num_keys, expected):
    assert KEY_TILE == 64
    assert whole_tiles(num_keys) == expected


def test_layout_refuses_negative_padding():
    with pytest.raises(ShapeError, match=r"padding of \[0, -1\] columns"):
        AttentionLayout(1, 3, (0, -1))

"""Greedy choice: the lowest id among equals, whatever the dtype and the width, and never from NaN."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.errors import InvariantError
from refinfer.sampling import greedy_token_ids

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

# Few different values, so that ties are the rule; each is exact in every dtype.
values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, float("inf"), float("-inf")])


@settings(deadline=None)
@given(row=st.lists(values, min_size=1, max_size=40), dtype=st.sampled_from(DTYPES))
def test_greedy_token_ids_takes_the_lowest_id_among_equals(row, dtype):
    assert greedy_token_ids(torch.tensor([row], dtype=dtype)) == [row.index(max(row))]


@settings(deadline=None)
@given(
    vocab_size=st.integers(1, 5000),
    dtype=st.sampled_from(DTYPES),
    positions=st.sets(st.integers(0, 4999), min_size=1, max_size=4),
)
def test_greedy_token_ids_takes_the_lowest_id_in_a_wide_row(vocab_size, dtype, positions):
    """Wide rows go through vectorised and threaded kernels, which could hand out another of the equals."""
    places = sorted({position % vocab_size for position in positions})
    logits = torch.zeros(2, vocab_size, dtype=dtype)
    logits[:, places] = 3.0
    assert greedy_token_ids(logits) == [places[0]] * 2


@settings(deadline=None)
@given(rows=st.lists(st.lists(values, min_size=5, max_size=5), max_size=4))
def test_neighbours_do_not_change_greedy_token_ids(rows):
    together = greedy_token_ids(torch.tensor(rows).reshape(-1, 5))
    assert together == [greedy_token_ids(torch.tensor([row]))[0] for row in rows]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("places", [[(0, 0)], [(1, 6)], [(0, 3), (2, 3)]], ids=str)
def test_greedy_token_ids_refuses_nan_and_names_the_rows(dtype, places):
    logits = torch.zeros(3, 7, dtype=dtype)
    for place in places:
        logits[place] = float("nan")
    with pytest.raises(InvariantError, match="hold NaN: unwritten cache memory was read") as caught:
        greedy_token_ids(logits)
    assert caught.value.rows == [row for row, _ in places]
    assert str(dtype) in str(caught.value)


def test_greedy_token_ids_takes_a_row_of_infinities():
    assert greedy_token_ids(torch.full((1, 5), float("-inf"))) == [0]

"""The two readers: what they read, what they hand to the attention core, and in how many calls they read it."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.attention_layout import KEY_TILE, whole_tiles
from refinfer.cache import PagedPart
from refinfer.cache.paged_view import _MAX_PLACES_AT_ONCE, BlocksAttentionView, GatherAttentionView, _groups, slots_of
from refinfer.errors import InvariantError, ShapeError
from refinfer.interfaces import AttentionView

READERS = (GatherAttentionView, BlocksAttentionView)
BLOCK_SIZE = 5
NUM_BLOCKS = 60


@pytest.fixture(params=READERS)
def reader(request):
    return request.param


@pytest.fixture
def storage(toolbox):
    """Keys and values of a cache of which every slot is poison, but for the slot of zeros."""
    shape = (toolbox.config.num_layers, NUM_BLOCKS * BLOCK_SIZE + 1, toolbox.num_kv_heads, toolbox.config.head_dim)
    keys, values = (torch.full(shape, float("nan"), dtype=torch.float64) for _ in range(2))
    keys[:, -1] = values[:, -1] = 0
    return keys, values


def test_readers_give_views(reader, storage):
    assert isinstance(reader(*storage, BLOCK_SIZE, [PagedPart((3,), 0, 1)]), AttentionView)


def test_slots_of_a_part_end_with_the_last_token_that_runs():
    part = PagedPart((7, 2, 9), 3, 4)
    assert part.num_tokens == 7
    assert slots_of(part, 4).tolist() == [28, 29, 30, 31, 8, 9, 10]


def test_slot_mapping_names_the_tokens_that_run_in_packing_order(reader, storage):
    view = reader(*storage, BLOCK_SIZE, [PagedPart((4, 1), 3, 3), PagedPart((6,), 0, 2)])
    assert view.slot_mapping.tolist() == [23, 24, 5, 30, 31]


@settings(deadline=None, max_examples=settings().max_examples // 3)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 70), st.integers(1, 12) | st.just(1)), min_size=1, max_size=6),
    layer_index=st.integers(0, 1),
    random=st.randoms(use_true_random=False),
)
def test_reader_hands_out_each_request_in_whole_tiles(toolbox, lengths, layer_index, random):
    """Wherever its blocks lie, and though all other slots hold NaN."""
    for reader in READERS:
        shape = (toolbox.config.num_layers, 80 * BLOCK_SIZE + 1, toolbox.num_kv_heads, toolbox.config.head_dim)
        keys, values = (torch.full(shape, float("nan"), dtype=torch.float64) for _ in range(2))
        keys[:, -1] = values[:, -1] = 0
        free = list(range(80))
        random.shuffle(free)
        parts, tokens_by_part, packed = [], [], []
        for index, (num_computed, num_scheduled) in enumerate(lengths):
            num_tokens = num_computed + num_scheduled
            names = list(range(100 * index + 1, 100 * index + 1 + num_tokens))
            block_ids = tuple(free.pop() for _ in range(-(-num_tokens // BLOCK_SIZE)))
            part = PagedPart(block_ids, num_computed, num_scheduled)
            slots = slots_of(part, BLOCK_SIZE)[:num_computed]
            keys[layer_index, slots] = toolbox.vectors(names[:num_computed], layer_index, toolbox.num_kv_heads, "key")
            values[layer_index, slots] = toolbox.vectors(
                names[:num_computed], layer_index, toolbox.num_kv_heads, "value"
            )
            parts.append(part)
            tokens_by_part.append(names)
            packed += names[num_computed:]
        probe, view = toolbox.Probe(), reader(keys, values, BLOCK_SIZE, parts)
        output = toolbox.attend(view, packed, layer_index, probe)
        assert torch.equal(output, -toolbox.vectors(packed, layer_index, toolbox.num_heads, "query"))
        for part, names, row in zip(parts, tokens_by_part, toolbox.rows_by_request(view, probe.calls), strict=True):
            own = names[part.num_computed_tokens :]
            queries = toolbox.vectors(own, layer_index, toolbox.num_heads, "query").transpose(0, 1)
            assert torch.equal(row.queries, queries)
            assert (row.num_queries, row.num_keys) == (len(own), len(names))
            for given_tensor, storage, kind in ((row.keys, keys, "key"), (row.values, values, "value")):
                expected = toolbox.vectors(names, layer_index, toolbox.num_kv_heads, kind)
                assert torch.equal(given_tensor[:, : len(names)].transpose(0, 1), expected)
                assert not given_tensor[:, len(names) :].any(), "zeros in what is left of the last tile"
                assert given_tensor.shape[1] == whole_tiles(len(names))
                assert torch.equal(storage[layer_index, slots_of(part, BLOCK_SIZE)], expected), "and it is written"
                assert storage[1 - layer_index, :-1].isnan().all(), "in no other layer"
        num_written = sum(part.num_tokens for part in parts)
        assert int(keys[layer_index, :-1, 0, 0].isfinite().sum()) == num_written, "nor anywhere else"
        assert not keys[:, -1].any()


def test_rectangles_lie_where_products_expect_them(toolbox, reader, storage):
    """Every head at the edge of a cache line and each key behind the other, so that attention copies nothing."""
    calls = []

    def look(queries, keys, values, _layout):
        calls.append((keys, values))
        return queries

    parts = [PagedPart((3, 4), 0, 7), PagedPart((5,), 0, 1), PagedPart((9,), 0, 2)]
    toolbox.attend(reader(*storage, BLOCK_SIZE, parts), list(range(10)), 0, look)
    for pair in calls:
        for dense in pair:
            assert dense[0].is_contiguous()
            assert dense.stride(1) * dense.element_size() % 64 == 0
            assert dense.data_ptr() % 64 == 0


def test_gather_reader_writes_after_it_has_read(toolbox, storage):
    keys, values = storage
    view = GatherAttentionView(keys, values, BLOCK_SIZE, [PagedPart((2,), 0, 2)])

    def look(queries, _keys, _values, _layout):
        assert keys[0, 10:12].isnan().all()
        return queries

    toolbox.attend(view, [1, 2], 0, look)
    assert torch.equal(keys[0, 10:12], toolbox.vectors([1, 2], 0, toolbox.num_kv_heads, "key"))


def test_view_refuses_another_number_of_tokens(toolbox, reader, storage):
    view = reader(*storage, BLOCK_SIZE, [PagedPart((0,), 0, 1), PagedPart((1,), 0, 1)])
    with pytest.raises(InvariantError, match="3 tokens run through a view made for 2"):
        toolbox.attend(view, [1, 2, 3], 0, toolbox.Probe())


@pytest.mark.parametrize(("num_computed", "num_scheduled"), [(2, 0), (-1, 2)])
def test_view_refuses_a_part_without_tokens(reader, storage, num_computed, num_scheduled):
    with pytest.raises(ShapeError, match="queries cannot be the last of"):
        reader(*storage, BLOCK_SIZE, [PagedPart((0,), num_computed, num_scheduled)])


@given(
    lengths=st.lists(
        st.tuples(st.integers(0, 20 * KEY_TILE - 3), st.sampled_from([1, 1, 1, 3])), min_size=1, max_size=30
    )
)
def test_requests_that_decode_share_calls_of_bounded_size(lengths):
    parts = [PagedPart((), num_computed, num_scheduled) for num_computed, num_scheduled in lengths]
    groups = _groups(parts)
    assert sorted(index for group in groups for index in group) == list(range(len(parts)))
    num_open: Counter[int] = Counter()
    for group in groups:
        assert list(group) == sorted(group)
        widths = {whole_tiles(parts[index].num_tokens) for index in group}
        assert len(widths) == 1, "each row is as wide as it would be alone"
        (width,) = widths
        assert len(group) == 1 or len(group) * width <= _MAX_PLACES_AT_ONCE
        if parts[group[0]].num_scheduled_tokens > 1:
            assert len(group) == 1, "a prompt has a call of its own"
        elif (len(group) + 1) * width <= _MAX_PLACES_AT_ONCE:
            num_open[width] += 1
    assert all(count == 1 for count in num_open.values()), "no call too many"

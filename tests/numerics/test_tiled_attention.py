"""Attention in tiles: its values, what it never looks at, and that a query's bits follow from its own place alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.attention_layout import KEY_TILE
from refinfer.numerics.tile_kernels import LibraryKernel, ProductKernel
from refinfer.numerics.tiled_attention import attend_in_tiles

HALF = settings(deadline=None, max_examples=settings().max_examples // 2)
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
NUM_KEYS = 3 * KEY_TILE
KERNELS = [LibraryKernel(), ProductKernel()]


def drawn(*shape, dtype=torch.float64, seed=0):
    """Normal values, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


cases = st.fixed_dictionaries(
    {
        "num_visible": st.lists(
            st.one_of(st.integers(0, 9), st.integers(62, 66), st.integers(126, 130), st.just(NUM_KEYS)),
            min_size=1,
            max_size=12,
        ),
        "num_kv_heads": st.integers(1, 3),
        "share": st.integers(1, 5),
        "head_dim": st.sampled_from([8, 16, 64, 1, 3, 7, 33]),
        "dtype": st.sampled_from(DTYPES),
        "seed": st.integers(0, 99),
    }
)


def kernels_for(case):
    """Those that are made for the dtype of a case."""
    return KERNELS if ProductKernel.is_available(case["dtype"]) else KERNELS[:1]


def drawn_tensors(case):
    """Queries, keys and values of one request."""
    heads, head_dim, seed = case["num_kv_heads"], case["head_dim"], 3 * case["seed"]
    queries = drawn(len(case["num_visible"]), heads, case["share"], head_dim, dtype=case["dtype"], seed=seed)
    keys, values = (drawn(heads, NUM_KEYS, head_dim, dtype=case["dtype"], seed=seed + index) for index in (1, 2))
    return queries, keys, values


@HALF
@given(case=cases, data=st.data())
def test_attention_in_tiles_looks_at_the_first_keys_of_each_query(case, data):
    queries, keys, values = drawn_tensors(case)
    kernel = data.draw(st.sampled_from(kernels_for(case)))
    output = attend_in_tiles(queries, keys, values, case["num_visible"], kernel)
    assert output.dtype is case["dtype"]
    # Weights and output are rounded to the dtype; a score is a sum of up to 64 products.
    eps = torch.finfo(case["dtype"]).eps * (4 if case["dtype"].itemsize == 2 else 40)
    for query, own, count in zip(queries.double(), output.double(), case["num_visible"], strict=True):
        scores = torch.einsum("ksd,knd->ksn", query, keys[:, :count].double()) / case["head_dim"] ** 0.5
        weights = scores.softmax(-1)
        expected = weights @ values[:, :count].double()
        size = weights @ values[:, :count].double().abs() + 1
        assert ((own - expected).abs() <= eps * size * (count > 0)).all()


@HALF
@given(case=cases, data=st.data(), offset=st.integers(0, 5))
def test_neighbours_and_places_in_memory_do_not_change_a_bit(case, data, offset):
    """Keys that begin off a cache line, and lie further apart, as rows of a rectangle with padding do."""
    queries, keys, values = drawn_tensors(case)
    kernel = data.draw(st.sampled_from(kernels_for(case)))
    together = attend_in_tiles(queries, keys, values, case["num_visible"], kernel)
    far_keys, far_values = (
        torch.nn.functional.pad(tensor, (0, 0, offset, 3))[:, offset : offset + NUM_KEYS] for tensor in (keys, values)
    )
    for index, count in enumerate(case["num_visible"]):
        alone = attend_in_tiles(queries[index : index + 1].clone(), far_keys, far_values, [count], kernel)
        assert torch.equal(alone[0], together[index])


@HALF
@given(case=cases, data=st.data())
def test_keys_that_nobody_looks_at_do_not_change_a_bit(case, data):
    queries, keys, values = drawn_tensors(case)
    kernel = data.draw(st.sampled_from(kernels_for(case)))
    together = attend_in_tiles(queries, keys, values, case["num_visible"], kernel)
    most = max(case["num_visible"])
    short_keys, short_values = (tensor[:, :most].clone() for tensor in (keys, values))
    assert torch.equal(attend_in_tiles(queries, short_keys, short_values, case["num_visible"], kernel), together)
    for tensor in (keys, values):
        tensor[:, most:] = 1000.0
    assert torch.equal(attend_in_tiles(queries, keys, values, case["num_visible"], kernel), together)


class RecordingKernel(LibraryKernel):
    """Keeps what it is given."""

    def __init__(self):
        self.calls = []

    def __call__(self, tiles, keys, values, bias, scale):
        self.calls.append((tiles, keys, values, bias))
        return super().__call__(tiles, keys, values, bias, scale)

    def tile_rows(self, share, dtype):  # noqa: ARG002
        return 8


@pytest.mark.parametrize("kernel", KERNELS, ids=["library", "products"])
@pytest.mark.parametrize("counts", [[0], [0, 0, 3], [0, 70, 0]], ids=str)
def test_query_that_looks_at_no_key_gets_zeros(counts, kernel):
    output = attend_in_tiles(drawn(len(counts), 2, 3, 8), drawn(2, 70, 8), drawn(2, 70, 8), counts, kernel)
    for row, count in zip(output, counts, strict=True):
        assert row.isfinite().all()
        assert bool(row.any()) == (count > 0)


def test_every_call_of_a_kernel_has_a_shape_that_follows_from_one_query():
    """Rows of a tile and width of its keys; only the number of tiles follows from company."""
    kernel = RecordingKernel()
    attend_in_tiles(drawn(10, 2, 3, 5), drawn(2, 70, 5), drawn(2, 70, 5), list(range(60, 70)), kernel)
    # Two queries of three heads fill a tile of eight rows; five float64 numbers are filled up to eight.
    assert [tuple(tuple(tensor.shape) for tensor in call) for call in kernel.calls] == [
        ((3, 2, 8, 8), (1, 2, 64, 8), (1, 2, 64, 8), (3, 1, 8, 64)),
        ((3, 2, 8, 8), (1, 2, 128, 8), (1, 2, 128, 8), (3, 1, 8, 128)),
    ]


@pytest.mark.parametrize("num_visible", [[5], [5, 6, 7]], ids=["one-query", "queries"])
@pytest.mark.parametrize("lies", ["off-a-cache-line", "far-apart"])
def test_keys_reach_a_kernel_packed_and_on_a_cache_line(lies, num_visible):
    """Not every processor rounds differently where they do not, so bits alone would not show it here."""
    if lies == "off-a-cache-line":
        keys = drawn(2 * KEY_TILE * 8 + 1)[1:].view(2, KEY_TILE, 8)
    else:
        keys = drawn(2, KEY_TILE, 16)[:, :, :8]
    kernel = RecordingKernel()
    queries = drawn(len(num_visible), 2, 3, 8)
    output = attend_in_tiles(queries, keys, keys, num_visible, kernel)
    for _, own_keys, own_values, _ in kernel.calls:
        for tensor in (own_keys, own_values):
            assert (tensor.data_ptr() % 64, tensor.stride(2)) == (0, 8)
    assert torch.equal(output, attend_in_tiles(queries, keys.clone(), keys.clone(), num_visible, kernel))


@pytest.mark.parametrize("num_queries", [1, 2, 3])
def test_no_kernel_is_called_with_one_tile_of_one_head_alone(num_queries):
    """The library divides it among threads in another way; only some dtypes, widths and numbers of threads show it."""
    kernel = RecordingKernel()
    queries, keys, values = drawn(num_queries, 1, 5, 8), drawn(1, 70, 8), drawn(1, 70, 8)
    output = attend_in_tiles(queries, keys, values, [3] * num_queries, kernel)
    ((tiles, *_),) = kernel.calls
    assert tiles.shape[0] == max(2, num_queries)
    # Tiles of another number of rows may have other bits, and on some processors have.
    torch.testing.assert_close(output, attend_in_tiles(queries, keys, values, [3] * num_queries, LibraryKernel()))


@pytest.mark.parametrize("kernel", KERNELS, ids=["library", "products"])
def test_how_queries_lie_in_memory_does_not_change_a_bit(kernel):
    queries, keys, values = drawn_tensors(
        {"num_visible": [60] * 9, "num_kv_heads": 2, "share": 4, "head_dim": 64, "dtype": torch.float32, "seed": 0}
    )
    turned = queries.transpose(2, 3).contiguous().transpose(2, 3)
    together = attend_in_tiles(queries, keys, values, [60] * 9, kernel)
    assert torch.equal(attend_in_tiles(turned, keys, values, [60] * 9, kernel), together)

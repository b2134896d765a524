"""The two ways to attend over tiles: their values, the rows they ask for, and that a tile is computed by itself."""

import pytest
import torch

from refinfer.numerics.tile_kernels import LibraryKernel, ProductKernel

KERNELS = [LibraryKernel(), ProductKernel()]
IDS = ["library", "products"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
NUM_TILES, NUM_KV_HEADS, TILE_ROWS, WIDTH, HEAD_DIM = 5, 3, 8, 64, 16


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def drawn_call(num_requests):
    """Tiles, keys, values and bias of one call; each row may look at a number of keys of its own."""
    tiles = drawn(NUM_TILES, NUM_KV_HEADS, TILE_ROWS, HEAD_DIM)
    keys, values = (drawn(num_requests, NUM_KV_HEADS, WIDTH, HEAD_DIM, seed=seed) for seed in (1, 2))
    counts = torch.randint(1, WIDTH + 1, (NUM_TILES, 1, TILE_ROWS, 1), generator=torch.Generator().manual_seed(3))
    bias = torch.zeros(NUM_TILES, 1, TILE_ROWS, WIDTH).masked_fill(torch.arange(WIDTH) >= counts, float("-inf"))
    return tiles, keys, values, bias


@pytest.mark.parametrize("num_requests", [1, NUM_TILES], ids=["one-request", "as-many-as-tiles"])
@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_kernel_gives_the_weighted_mean_of_the_values_in_sight(kernel, num_requests):
    tiles, keys, values, bias = drawn_call(num_requests)
    output = kernel(tiles, keys, values, bias, 0.3)
    weights = (0.3 * tiles.double() @ keys.double().transpose(2, 3) + bias.double()).softmax(-1)
    assert output.shape == tiles.shape
    torch.testing.assert_close(output.double(), weights @ values.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("num_requests", [1, NUM_TILES], ids=["one-request", "as-many-as-tiles"])
@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_kernel_leaves_what_it_is_given_as_it_is(kernel, num_requests):
    """The bias is kept from layer to layer, and tiles may be a view of the queries."""
    given = drawn_call(num_requests)
    before = [tensor.clone() for tensor in given]
    kernel(*given, 0.3)
    for tensor, own in zip(given, before, strict=True):
        assert torch.equal(tensor, own)


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_tile_gets_the_same_bits_alone_and_whoever_its_keys_are_shared_with(kernel):
    tiles, keys, values, bias = drawn_call(1)
    together = kernel(tiles, keys, values, bias, 0.3)
    repeated = (keys.repeat(NUM_TILES, 1, 1, 1), values.repeat(NUM_TILES, 1, 1, 1))
    assert torch.equal(kernel(tiles, *repeated, bias, 0.3), together)
    for index in range(NUM_TILES):
        own = slice(index, index + 1)
        assert torch.equal(kernel(tiles[own].clone(), keys, values, bias[own], 0.3), together[own])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("share", [1, 2, 3, 5, 8, 9])
def test_tiles_of_the_library_keep_the_slices_of_threads_aligned(share, dtype):
    """Bits show it only where a tile of queries falls to another thread than before."""
    rows = LibraryKernel().tile_rows(share, dtype)
    assert rows >= share
    assert not rows * 2 * max(4, dtype.itemsize) % 16


@pytest.mark.parametrize(("share", "rows"), [(1, 2), (2, 2), (3, 3), (5, 5), (8, 8)])
def test_tiles_of_products_have_the_rows_that_are_asked_for(share, rows):
    assert ProductKernel().tile_rows(share, torch.float32) == rows


def test_products_are_for_float32_alone():
    assert [dtype for dtype in DTYPES if ProductKernel.is_available(dtype)] == [torch.float32]

"""The choice of a kernel of attention: the cheapest that keeps the promise, found out by trying."""

from functools import partial

import pytest
import torch

from refinfer.numerics import attention_check
from refinfer.numerics.attention_check import NUM_KEYS, attention_depends_on_company, tile_kernel
from refinfer.numerics.tile_kernels import LibraryKernel, ProductKernel
from refinfer.numerics.tiled_attention import attend

WIDTHS = (6, 3, 16)
EPS = torch.finfo(torch.float32).eps


def place_in_the_batch(tiles, _):
    return (torch.arange(len(tiles)) % 5 == 4)[:, None, None, None]


FAULTS = {
    "few-tiles": lambda tiles, _: len(tiles) < 3,
    "many-tiles": lambda tiles, _: len(tiles) >= 10,
    "keys-of-one-request": lambda tiles, keys: len(keys) == 1 and len(tiles) > 1,
    "keys-of-several-requests": lambda _, keys: len(keys) > 1,
    "long-requests": lambda tiles, keys: len(tiles) < 3 and keys.shape[2] > 256,
    "place-in-the-batch": place_in_the_batch,
}
"""Where products get other bits."""


@pytest.fixture
def nothing_tried(monkeypatch):
    monkeypatch.setattr(attention_check, "_passed", set())


@pytest.fixture
def plant(monkeypatch):
    """Makes products depend on company in a way of its own."""

    def make_faulty(is_other):
        call = ProductKernel.__call__

        def faulty(self, tiles, keys, values, bias, scale):
            return call(self, tiles, keys, values, bias, scale) * (1 + EPS * is_other(tiles, keys))

        monkeypatch.setattr(ProductKernel, "__call__", faulty)

    return make_faulty


@pytest.mark.usefixtures("nothing_tried")
@pytest.mark.parametrize("is_other", FAULTS.values(), ids=FAULTS)
def test_products_that_depend_on_company_are_not_taken(plant, is_other):
    plant(is_other)
    assert type(tile_kernel(*WIDTHS, torch.float32)) is LibraryKernel
    assert type(tile_kernel(*WIDTHS, torch.float32)) is LibraryKernel, "and not the next time either"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_library_attends_where_products_are_not_made_for_the_dtype(dtype):
    assert type(tile_kernel(*WIDTHS, dtype)) is LibraryKernel


@pytest.mark.usefixtures("nothing_tried")
def test_a_kernel_is_tried_once_for_the_same_widths(monkeypatch):
    tried = []

    def recorded(_, widths, dtype, num_keys):
        tried.append((widths, dtype, num_keys))

    monkeypatch.setattr(attention_check, "attention_depends_on_company", recorded)
    for _ in range(2):
        assert type(tile_kernel(*WIDTHS, torch.float32)) is ProductKernel
    assert tried == [(WIDTHS, torch.float32, num_keys) for num_keys in NUM_KEYS]


@pytest.mark.parametrize("num_keys", NUM_KEYS)
@pytest.mark.parametrize("kernel", [LibraryKernel(), ProductKernel()], ids=["library", "products"])
def test_both_kernels_keep_the_promise_here(kernel, num_keys):
    attention = partial(attend, kernel=kernel)
    assert attention_depends_on_company(attention, WIDTHS, torch.float32, num_keys) is None

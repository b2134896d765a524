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


def summed_in_parts(first, second, parts):
    """Batched products whose terms are added up part by part in float32, and the parts then one after another."""
    sums = [torch.matmul(first[..., part].double(), second[..., part, :].double()).float() for part in parts]
    return sum(sums[1:], start=sums[0])


@pytest.mark.parametrize("where", ["scores", "values"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_another_order_of_adding_up_is_seen_in_half_precision(dtype, where):
    """Rows of normal numbers show next to nothing of it once they are rounded to half precision."""

    def attention(queries, keys, values, layout):
        is_alone = layout.num_queries == 1
        share = queries.shape[1] // keys.shape[1]
        keys, values = (tensor.repeat_interleave(share, dim=1) for tensor in (keys, values))
        width = {"scores": keys.shape[3], "values": keys.shape[2]}
        parts = {name: [slice(None)] for name in width}
        if is_alone:
            parts[where] = [slice(None, width[where] // 2), slice(width[where] // 2, None)]
        scores = summed_in_parts(queries, keys.transpose(2, 3), parts["scores"]) / queries.shape[3] ** 0.5
        ends = torch.tensor(layout.visible_ends)
        hidden = torch.arange(keys.shape[2])[None] >= ends[:, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return summed_in_parts(weights.to(dtype), values, parts["values"]).to(dtype)

    sizes = [attention_depends_on_company(attention, WIDTHS, dtype, num_keys) for num_keys in NUM_KEYS[1:]]
    assert all(size in (1, 2) for size in sizes)

"""Three ways to multiply: each gives the product, and on as many rows at once as it says."""

from functools import partial

import pytest
import torch

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from refinfer import load_model
from refinfer.cache import CausalAttentionView
from refinfer.model.linear import Linear
from refinfer.numerics.products import LinearProduct, PackedProduct, PlainProduct, TiledProduct

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
COUNTS = [1, 2, 31, 32, 33, 64, 255, 256, 257, 258, 300, 513, 600]
needs_packing = pytest.mark.skipif(
    not PackedProduct.is_available(torch.float32), reason="this torch cannot pack weights: it has no oneDNN"
)
MAKERS = [
    *(pytest.param(PlainProduct, dtype, id=f"plain-{dtype}") for dtype in DTYPES),
    *(pytest.param(TiledProduct, dtype, id=f"tiled-{dtype}") for dtype in DTYPES),
    *(
        pytest.param(partial(PackedProduct, pads_single_row=pads), torch.float32, id=name, marks=needs_packing)
        for pads, name in ((False, "packed"), (True, "packed-padding"))
    ),
]


def drawn(*shape, dtype, seed=0):
    """Normal values, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("has_bias", [False, True], ids=["without-bias", "with-bias"])
@pytest.mark.parametrize(("make", "dtype"), MAKERS)
def test_product_is_inputs_times_weight_plus_bias(make, dtype, has_bias):
    weight, bias = drawn(43, 20, dtype=dtype), drawn(43, dtype=dtype, seed=1) if has_bias else None
    product = make(weight, bias)
    assert isinstance(product, LinearProduct)
    for count in COUNTS:
        inputs = drawn(count, 20, dtype=dtype, seed=2)
        output = product(inputs)
        assert output.shape == (count, 43)
        assert output.dtype is dtype
        exact = inputs.double() @ weight.double().T
        size = inputs.double().abs() @ weight.double().abs().T
        if bias is not None:
            exact, size = exact + bias.double(), size + bias.double().abs()
        # Each of a few dozen roundings is of half an ulp of a partial sum, and those are seldom as large as `size`.
        assert ((output.double() - exact).abs() <= 2 * torch.finfo(dtype).eps * size).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_tiled_product_gives_a_row_the_same_bits_in_any_company(dtype, count):
    product = TiledProduct(drawn(24, 40, dtype=dtype), drawn(24, dtype=dtype, seed=1))
    inputs = drawn(600, 40, dtype=dtype, seed=2)
    together = product(inputs)
    for start in (0, (600 - count) // 2, 600 - count):
        assert torch.equal(product(inputs[start : start + count]), together[start : start + count])


@needs_packing
def test_packed_product_never_multiplies_more_rows_at_once_than_were_probed(monkeypatch):
    counts = []
    multiply = PackedProduct._multiply

    def counted(self, inputs):
        counts.append(len(inputs))
        return multiply(self, inputs)

    monkeypatch.setattr(PackedProduct, "_multiply", counted)
    weight = drawn(24, 40, dtype=torch.float32)
    PackedProduct(weight, None, pads_single_row=False)(drawn(513, 40, dtype=torch.float32))
    assert counts == [256, 256, 1]
    counts.clear()
    PackedProduct(weight, None, pads_single_row=True)(drawn(513, 40, dtype=torch.float32))
    assert counts == [256, 256, 2]


def test_tiled_product_always_multiplies_as_many_rows(monkeypatch):
    counts = []
    linear = torch.nn.functional.linear

    def counted(inputs, weight, bias):
        counts.append(len(inputs))
        return linear(inputs, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    product = TiledProduct(drawn(3, 5, dtype=torch.float32), None)
    for count, num_tiles in ((1, 1), (31, 1), (32, 1), (33, 2), (100, 4)):
        counts.clear()
        assert len(product(drawn(count, 5, dtype=torch.float32))) == count
        assert counts == [32] * num_tiles


@needs_packing
def test_packed_product_holds_a_copy_of_its_weight():
    weight, inputs = drawn(4, 5, dtype=torch.float32), drawn(2, 5, dtype=torch.float32, seed=1)
    product = PackedProduct(weight, None, pads_single_row=False)
    before = product(inputs)
    weight.zero_()
    assert torch.equal(product(inputs), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_packed_product_is_for_float32_alone(dtype):
    assert not PackedProduct.is_available(dtype)


@pytest.mark.parametrize("lacking", ["backend", "names"])
def test_packed_product_is_not_available_without(monkeypatch, lacking):
    if lacking == "backend":
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    else:
        monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert not PackedProduct.is_available(torch.float32)


def test_model_keeps_the_promise_where_packing_is_not_available(monkeypatch):
    monkeypatch.setattr(PackedProduct, "is_available", staticmethod(lambda _: False))
    spec = CheckpointSpec(hidden_size=16, intermediate_size=24, head_dim=8, vocab_size=29, num_tied_rows=2)
    model = load_model(cached_checkpoint(spec))
    products = [module.prepare() for module in model.modules() if isinstance(module, Linear)]
    assert {type(product) for product in products} == {TiledProduct}
    requests = [torch.arange(length) * 7 % 29 for length in (1, 5, 40, 2)]
    packed = model.forward(
        torch.cat(requests),
        torch.cat([torch.arange(len(tokens)) for tokens in requests]),
        CausalAttentionView([len(tokens) for tokens in requests]),
    )
    alone = [
        model.forward(tokens, torch.arange(len(tokens)), CausalAttentionView([len(tokens)])) for tokens in requests
    ]
    assert torch.equal(packed, torch.cat(alone))

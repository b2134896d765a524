"""The check at load: every operation that depends on company is named, and those that do not pass."""

from functools import partial

import pytest
import torch
from torch.nn import functional

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from refinfer import load_model
from refinfer.attention_layout import AttentionLayout
from refinfer.errors import NumericsError
from refinfer.numerics import InvariantNumerics, PlainNumerics, check_operations
from refinfer.numerics.products import PackedProduct, PlainProduct, TiledProduct
from refinfer.numerics.self_check import depends_on_company, product_maker

DTYPES = ["float32", "float64", "bfloat16", "float16"]
FEW = 5
"""Planted faults show where fewer rows than this run together."""

needs_packing = pytest.mark.skipif(
    not PackedProduct.is_available(torch.float32), reason="this torch cannot pack weights: it has no oneDNN"
)


def nudged(output, num_rows):
    """Adds about one unit in the last place when few rows ran."""
    if num_rows >= FEW:
        return output
    return (output.double() * (1 + torch.finfo(output.dtype).eps)).to(output.dtype)


class NormFault(InvariantNumerics):
    def rms_norm(self, inputs, weight, eps):
        return nudged(super().rms_norm(inputs, weight, eps), len(inputs))


class SiluFault(InvariantNumerics):
    def silu(self, inputs):
        return nudged(super().silu(inputs), len(inputs))


class RotateFault(InvariantNumerics):
    def rotate(self, vectors, cos, sin):
        return nudged(super().rotate(vectors, cos, sin), len(vectors))


class CosineFault(InvariantNumerics):
    def rotary_tables(self, position_ids, frequencies, dtype):
        cos, sin = super().rotary_tables(position_ids, frequencies, dtype)
        return nudged(cos, len(cos)), sin


class SineFault(InvariantNumerics):
    def rotary_tables(self, position_ids, frequencies, dtype):
        cos, sin = super().rotary_tables(position_ids, frequencies, dtype)
        return cos, nudged(sin, len(sin))


class AttentionFault(InvariantNumerics):
    def attention(self, queries, keys, values, layout):
        return nudged(super().attention(queries, keys, values, layout), queries.shape[2])


class LongAttentionFault(InvariantNumerics):
    def attention(self, queries, keys, values, layout):
        output = super().attention(queries, keys, values, layout)
        return nudged(output, queries.shape[2]) if layout.num_keys > 256 else output


class DecodingFault(InvariantNumerics):
    """Gives other bits where several requests decode in one call."""

    def attention(self, queries, keys, values, layout):
        return nudged(super().attention(queries, keys, values, layout), 1 if len(queries) > 1 else FEW)


class RoomFault(InvariantNumerics):
    """Looks one key too far, where there is a tile more than needed."""

    def attention(self, queries, keys, values, layout):
        layout = AttentionLayout(layout.num_queries, min(layout.num_keys + 1, keys.shape[2]))
        return super().attention(queries, keys, values, layout)


@pytest.fixture(scope="session")
def folder():
    """A tiny checkpoint with biases."""
    spec = CheckpointSpec(hidden_size=16, intermediate_size=24, head_dim=8, vocab_size=29, attention_bias=True)
    return cached_checkpoint(spec)


@pytest.fixture
def load_with(monkeypatch, folder):
    """Loads the checkpoint with another invariant manner."""

    def load(manner, dtype="float32"):
        monkeypatch.setattr("refinfer.model.checkpoint.InvariantNumerics", manner)
        return load_model(folder, dtype=dtype)

    return load


@pytest.fixture(params=[1, 2])
def num_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("manner", "operation"),
    [
        (NormFault, "the norm of 16 wide rows"),
        (SiluFault, "SiLU of 24 wide rows"),
        (CosineFault, "rotary tables of 8 wide heads"),
        (SineFault, "rotary tables of 8 wide heads"),
        (RotateFault, "the rotation of 8 wide heads"),
        (AttentionFault, "attention over 5 keys"),
        (LongAttentionFault, "attention over 330 keys"),
        (RoomFault, "attention over 1 keys"),
        (DecodingFault, "attention over 1 keys"),
    ],
)
def test_load_model_refuses_an_operation_that_depends_on_company(load_with, manner, operation, dtype):
    with pytest.raises(NumericsError) as caught:
        load_with(manner, dtype)
    message = str(caught.value)
    assert message.startswith(f"{operation} in {dtype} with {torch.get_num_threads()} threads gives a row other bits")
    assert "pass batch_invariant=False" in message
    assert (caught.value.operation, caught.value.dtype) == (operation, getattr(torch, dtype))
    assert caught.value.size in range(1, FEW)


@pytest.mark.parametrize("dtype", DTYPES)
def test_load_model_refuses_where_no_product_keeps_the_promise(load_with, plant, num_threads, dtype):
    plant(TiledProduct)
    plant(PlainProduct)
    plant(PackedProduct, pads_single_row=False)
    plant(PackedProduct, pads_single_row=True)
    threads = f"in {dtype} with {num_threads} threads"
    with pytest.raises(NumericsError, match=rf"the product by a weight of \(\d+, \d+\) {threads}.*when 1 rows run"):
        load_with(InvariantNumerics, dtype)


def test_load_model_without_the_promise_checks_nothing(monkeypatch, folder, plant):
    plant(TiledProduct)
    monkeypatch.setattr("refinfer.model.checkpoint.check_operations", None)
    assert type(load_model(folder, batch_invariant=False).numerics) is PlainNumerics


@pytest.mark.parametrize("dtype", DTYPES)
def test_load_model_takes_the_operations_as_they_are(load_with, dtype):
    model = load_with(InvariantNumerics, dtype)
    check_operations(model.numerics, model.config, model.dtype)


@pytest.fixture
def plant(monkeypatch):
    """Makes one kind of product depend on company."""

    def make_faulty(kind, **attributes):
        call = kind.__call__

        def faulty(self, inputs):
            output = call(self, inputs)
            is_meant = all(getattr(self, name) == value for name, value in attributes.items())
            return nudged(output, len(inputs)) if is_meant else output

        monkeypatch.setattr(kind, "__call__", faulty)

    return make_faulty


def made(maker):
    """Which way of multiplying a maker stands for, in words."""
    if isinstance(maker, partial):
        return maker.func, maker.keywords
    return maker, {}


@needs_packing
def test_product_maker_falls_back_from_packed_to_padded_to_tiles(monkeypatch):
    """A way that is not broken here may yet depend on company on this machine; then a later one comes first."""
    weight = torch.randn(24, 16)
    tried = []

    def recorded(product, *_):
        tried.append((type(product), getattr(product, "pads_single_row", None)))
        return 1 if tried[-1] in broken else None

    monkeypatch.setattr("refinfer.numerics.self_check.depends_on_company", recorded)
    ways = [(PackedProduct, False), (PackedProduct, True), (TiledProduct, None)]
    for num_broken, way in enumerate(ways):
        broken = ways[:num_broken]
        tried.clear()
        monkeypatch.setattr("refinfer.numerics.self_check._passed", set())
        kind, keywords = made(product_maker(weight, None))
        assert (kind, keywords.get("pads_single_row")) == way
        assert tried == ways[: num_broken + 1]
    broken = ways
    monkeypatch.setattr("refinfer.numerics.self_check._passed", set())
    with pytest.raises(NumericsError, match=r"the product by a weight of \(24, 16\) in float32"):
        product_maker(weight, None)


@needs_packing
@pytest.mark.parametrize("has_bias", [False, True])
def test_product_maker_never_takes_a_way_that_depends_on_company(plant, has_bias):
    weight, bias = torch.randn(24, 16), torch.randn(24) if has_bias else None
    plant(PackedProduct, pads_single_row=False)
    assert made(product_maker(weight, bias)) != (PackedProduct, {"pads_single_row": False})
    plant(PackedProduct, pads_single_row=True)
    assert made(product_maker(weight, bias)) == (TiledProduct, {})
    plant(TiledProduct)
    with pytest.raises(NumericsError):
        product_maker(weight, bias)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_product_maker_takes_tiles_where_nothing_cheaper_keeps_the_promise(plant, dtype):
    """In half precision the library's product keeps it on some processors."""
    weight = torch.randn(24, 16).to(dtype)
    kind, _ = made(product_maker(weight, None))
    assert kind is TiledProduct or (kind is PlainProduct and dtype != torch.float64)
    plant(PlainProduct)
    assert made(product_maker(weight, None)) == (TiledProduct, {})


def summed_in_parts(inputs, weight, parts):
    """Products whose terms are added up part by part in float32, and the parts then one after another."""
    sums = [functional.linear(inputs[:, part].double(), weight[:, part].double()).float() for part in parts]
    return sum(sums[1:], start=sums[0])


ORDERS = {
    "even-and-odd": lambda _: [slice(0, None, 2), slice(1, None, 2)],
    "halves": lambda width: [slice(None, width // 2), slice(width // 2, None)],
    "blocks-of-eight": lambda width: [slice(start, start + 8) for start in range(0, width, 8)],
}
"""In which parts a row that comes alone is added up; with others its terms are added up in one part."""


@pytest.mark.parametrize("kind", [PlainProduct, TiledProduct])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(24, 64), (64, 48), (64, 32), (16, 16), (7, 2048)], ids=str)
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_another_order_of_adding_up_is_seen_in_half_precision(monkeypatch, dtype, shape, order, kind):
    """Processors with instructions for bfloat16 multiply a row that comes alone in another order of its columns.

    Drawn rows do not show it: of (64, 32) 6 to 10 rows in 4,000 got other bits, and no probe of 600 rows had one.
    """

    def lone_row_in_parts(product, inputs):
        parts = order(shape[1]) if len(inputs) == 1 else [slice(None)]
        sums, bias = summed_in_parts(inputs, product._weight, parts), product._bias
        return (sums if bias is None else sums + bias.float()).to(inputs.dtype)

    monkeypatch.setattr("refinfer.numerics.self_check._passed", set())
    monkeypatch.setattr(PlainProduct, "multiplies_row_by_row", lambda _: True)
    monkeypatch.setattr(kind, "__call__", lone_row_in_parts)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=generator).mul_(0.2).to(dtype)
    bias = torch.randn(shape[0], generator=generator).to(dtype)
    for own_bias in (None, bias):
        if kind is PlainProduct:
            assert made(product_maker(weight, own_bias)) == (TiledProduct, {})
        else:
            monkeypatch.setattr(PlainProduct, "multiplies_row_by_row", lambda _: False)
            with pytest.raises(NumericsError, match="when 1 rows run"):
                product_maker(weight, own_bias)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_norm_whose_mean_is_added_up_otherwise_alone_is_seen_in_half_precision(load_with, dtype):
    """Its float32 mean is off by one unit in the last place, which half precision rounds away."""

    class MeanFault(InvariantNumerics):
        def rms_norm(self, inputs, weight, eps):
            wide = super().rms_norm(inputs.float(), weight.float(), eps)
            return nudged(wide, len(inputs)).to(inputs.dtype)

    with pytest.raises(NumericsError, match="the norm of 16 wide rows"):
        load_with(MeanFault, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_library_product_is_not_even_tried_where_it_may_choose_a_kernel_by_the_number_of_rows(monkeypatch, dtype):
    """What follows from construction is promised: tiles, or rows that are added up one by one."""
    monkeypatch.setattr("refinfer.numerics.self_check._passed", set())
    for name in ("_is_mkldnn_bf16_supported", "_is_mkldnn_fp16_supported"):
        monkeypatch.setattr(torch.ops.mkldnn, name, lambda: True, raising=False)
    assert made(product_maker(torch.randn(24, 16).to(dtype), None)) == (TiledProduct, {})


def test_product_maker_tries_nothing_twice(monkeypatch):
    weight = torch.randn(29, 31)
    first = made(product_maker(weight, None))
    monkeypatch.setattr("refinfer.numerics.self_check.depends_on_company", None)
    assert made(product_maker(weight.clone(), None)) == first


@pytest.mark.parametrize("size", [1, 2, 3, 17, 33, 255])
def test_depends_on_company_gives_the_size_that_gets_other_bits(size):
    inputs = torch.randn(300, 4)
    assert depends_on_company(lambda rows: rows + (len(rows) == size), inputs) == size


def test_depends_on_company_sees_a_row_that_depends_on_its_place():
    def last_row_differs(rows):
        return rows + torch.nn.functional.pad(torch.ones(1, 1), (0, 0, len(rows) - 1, 0))

    assert depends_on_company(last_row_differs, torch.randn(300, 4)) == 1
    assert depends_on_company(lambda rows: rows * 2, torch.randn(300, 4)) is None


def test_depends_on_company_bounds_the_time_of_large_weights():
    calls = []

    def counted(rows):
        calls.append(len(rows))
        return rows

    depends_on_company(counted, torch.randn(300, 4), 10**12)
    assert sorted(set(calls)) == [1, 2, 3, 17, 64, 255, 300]

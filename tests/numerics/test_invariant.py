"""The promise of the invariant manner: a row's bits are those of its request run by itself."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.attention_layout import AttentionLayout
from refinfer.numerics import InvariantNumerics, Numerics
from refinfer.numerics.tile_kernels import LibraryKernel

NUMERICS = InvariantNumerics()
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
WIDTHS = [1, 12, 20, 43, 48, 112, 344]
HALF = settings(deadline=None, max_examples=settings().max_examples // 2)


def drawn(*shape, dtype=torch.float64, seed=0, scale=1.0):
    """Normal values, the same for the same seed."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale).to(dtype)


@contextmanager
def threads(count):
    """Runs a block with so many threads of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_invariant_numerics_is_a_manner():
    assert isinstance(NUMERICS, Numerics)


@st.composite
def rectangles(draw):
    """Requests side by side, each with its own left padding, over columns of which the last ones run."""
    lengths = st.one_of(st.integers(1, 12), st.integers(61, 67), st.integers(125, 135))
    own_lengths = draw(st.lists(lengths, min_size=1, max_size=3), label="tokens of each request")
    num_keys = max(own_lengths)
    return {
        "dtype": draw(st.sampled_from(DTYPES), label="dtype"),
        "num_kv_heads": draw(st.integers(1, 3), label="kv heads"),
        "share": draw(st.integers(1, 5), label="query heads that share one"),
        "head_dim": draw(st.sampled_from([8, 16, 64, 1, 3, 7, 20, 33]), label="head_dim"),
        "cuts": sorted(draw(st.sets(st.integers(1, num_keys), max_size=4), label="cuts") | {0, num_keys}),
        "paddings": tuple(num_keys - length for length in own_lengths),
        "room": draw(st.integers(0, 70), label="columns past the written ones"),
        "seed": draw(st.integers(0, 99), label="seed"),
    }


def drawn_tensors(case):
    """Queries, keys and values of a case; columns of padding and room hold large numbers, which nobody may see."""
    num_keys, room = case["cuts"][-1], case["room"]
    tensors = []
    for index, (heads, columns) in enumerate([(case["share"], num_keys), (1, num_keys + room), (1, num_keys + room)]):
        shape = (len(case["paddings"]), heads * case["num_kv_heads"], columns, case["head_dim"])
        tensor = drawn(*shape, dtype=case["dtype"], seed=3 * case["seed"] + index)
        for row, padding in enumerate(case["paddings"]):
            tensor[row, :, :padding] *= 100
        tensor[:, :, num_keys:] *= -100
        tensors.append(tensor)
    return tensors


def in_chunks(case, queries, keys, values):
    """Runs the columns chunk by chunk, as a cache would; the room of a chunk holds what later ones write."""
    outputs = []
    for start, stop in zip(case["cuts"], case["cuts"][1:], strict=False):
        layout = AttentionLayout(stop - start, stop, case["paddings"])
        outputs.append(NUMERICS.attention(queries[:, :, start:stop], keys, values, layout))
    return torch.cat(outputs, dim=2)


@settings(deadline=None)
@given(case=rectangles())
def test_company_chunks_padding_and_room_do_not_change_a_bit_of_attention(case):
    assert_queries_get_their_own_bits(case)


@settings(deadline=None, max_examples=settings().max_examples // 10)
@given(case=rectangles())
def test_company_does_not_change_a_bit_of_attention_in_two_threads(case):
    """Few cases: on a busy machine threads wait for each other most of the time."""
    with threads(2):
        assert_queries_get_their_own_bits(case, every=13)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("num_heads", "head_dim"), [(4, 34), (4, 128), (9, 8)], ids=str)
def test_a_single_query_of_a_single_head_gets_the_bits_of_its_prompt_in_three_threads(num_heads, head_dim, dtype):
    """Alone it is one task, which the library cuts in pieces where there are as many threads."""
    queries = drawn(1, num_heads, 130, head_dim, dtype=dtype, scale=3.0)
    keys, values = (drawn(1, 1, 130, head_dim, dtype=dtype, seed=seed, scale=3.0) for seed in (1, 2))
    with threads(3):
        together = NUMERICS.attention(queries, keys, values, AttentionLayout(130, 130))
        for end in range(1, 131, 3):
            own = NUMERICS.attention(
                queries[:, :, end - 1 : end], keys[:, :, :end], values[:, :, :end], AttentionLayout(1, end)
            )
            assert torch.equal(own, together[:, :, end - 1 : end]), end


def assert_queries_get_their_own_bits(case, every=1):
    """Runs all chunks, then single queries again by themselves, over their request's tokens alone."""
    queries, keys, values = drawn_tensors(case)
    num_keys = case["cuts"][-1]
    together = in_chunks(case, queries, keys, values)
    for row, padding in enumerate(case["paddings"]):
        assert not together[row, :, :padding].any(), "a padding query gets zeros"
        for column in range(num_keys - 1, padding - 1, -every):
            own = slice(padding, column + 1)
            alone = NUMERICS.attention(
                queries[row : row + 1, :, column : column + 1].clone(),
                keys[row : row + 1, :, own].clone(),
                values[row : row + 1, :, own].clone(),
                AttentionLayout(1, column + 1 - padding),
            )
            assert torch.equal(alone[0, :, 0], together[row, :, column]), f"row {row}, column {column}"


@HALF
@given(case=rectangles())
def test_attention_matches_the_formula_in_float64(case):
    queries, keys, values = drawn_tensors(case)
    output = in_chunks(case, queries, keys, values).double()
    # Of the dtype: the weights and the output are rounded to it. Of float32: scores are sums of up to 64 products.
    bound = 4 * torch.finfo(case["dtype"]).eps if case["dtype"].itemsize == 2 else 40 * torch.finfo(case["dtype"]).eps
    for row, padding in enumerate(case["paddings"]):
        own_queries = queries[row, :, padding:].double()
        own_keys, own_values = (
            tensor[row, :, padding : case["cuts"][-1]].double().repeat_interleave(case["share"], dim=0)
            for tensor in (keys, values)
        )
        scores = own_queries @ own_keys.transpose(1, 2) / np.sqrt(case["head_dim"])
        is_later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(is_later, float("-inf")).softmax(-1)
        assert (
            (output[row, :, padding:] - weights @ own_values).abs() <= bound * (weights @ own_values.abs() + 1)
        ).all()


def test_weights_of_attention_are_the_numbers_that_count():
    """Attention that looked nowhere in particular would pass a test of bits."""
    keys = 50 * torch.eye(8)[None, None]
    values = torch.arange(8.0)[None, None, :, None].expand(1, 1, 8, 8)
    output = NUMERICS.attention(keys, keys, values, AttentionLayout(8, 8))
    assert torch.equal(output[0, 0, :, 0], torch.arange(8.0))


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_number_of_rows_does_not_change_a_bit_of_silu(width, dtype, num_threads):
    inputs = drawn(300, width, dtype=dtype, scale=5)
    with threads(num_threads):
        together = NUMERICS.silu(inputs)
        for count in (1, 2, 3, 5, 7, 8, 17, 31, 100, 299):
            for start in (0, 300 - count):
                rows = slice(start, start + count)
                assert torch.equal(NUMERICS.silu(inputs[rows].clone()), together[rows])


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_number_of_rows_does_not_change_a_bit_of_norm(width, dtype, num_threads):
    inputs, weight = drawn(300, width, dtype=dtype, scale=5), drawn(width, dtype=dtype, seed=1)
    with threads(num_threads):
        together = NUMERICS.rms_norm(inputs, weight, 1e-5)
        for count in (1, 2, 3, 5, 8, 17, 31, 100, 299):
            for start in (0, 300 - count):
                rows = slice(start, start + count)
                assert torch.equal(NUMERICS.rms_norm(inputs[rows].clone(), weight, 1e-5), together[rows])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_silu_matches_the_formula_in_float64(dtype):
    inputs = torch.linspace(-700, 700, 7001, dtype=torch.float64).to(dtype)[None]
    x = inputs.double().numpy()
    with np.errstate(over="ignore"):
        expected = x / (1 + np.exp(-x))
    computed = torch.promote_types(dtype, torch.float32)
    # Where exp(-x) is past the largest number, 1 / exp(-x) is below the smallest: the result is zero.
    atol = 1000 / torch.finfo(computed).max + torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    output = NUMERICS.silu(inputs)
    assert output.dtype is dtype
    np.testing.assert_allclose(output.double().numpy(), expected, rtol=2 * torch.finfo(dtype).eps, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_silu_of_the_largest_numbers_is_finite(dtype):
    largest = torch.finfo(dtype).max
    output = NUMERICS.silu(torch.tensor([[-largest, -largest / 2, 0.0, largest / 2, largest]], dtype=dtype))
    assert output.tolist()[0][:3] == [0.0, 0.0, 0.0]
    assert torch.equal(output[0, 3:], torch.tensor([largest / 2, largest], dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_of_equal_shape_are_probed_once(monkeypatch, dtype):
    """A model has many layers of the same widths; each probe takes a while."""
    shapes = []

    def probed(weight, bias):
        shapes.append((tuple(weight.shape), weight.dtype, bias is not None))
        return lambda *_: lambda rows: rows

    monkeypatch.setattr("refinfer.numerics.invariant.product_maker", probed)
    numerics = InvariantNumerics()
    for shape, bias in [((4, 8), None), ((4, 8), None), ((8, 4), None), ((4, 8), torch.zeros(4, dtype=dtype))] * 2:
        numerics.prepare_linear(torch.zeros(shape, dtype=dtype), bias)
    assert shapes == [((4, 8), dtype, False), ((8, 4), dtype, False), ((4, 8), dtype, True)]


def test_kernel_of_attention_is_chosen_once_for_the_same_widths_and_threads(monkeypatch):
    """Each choice tries some calls; another number of threads is another choice."""
    asked = []

    def chosen(*widths):
        asked.append((*widths, torch.get_num_threads()))
        return LibraryKernel()

    monkeypatch.setattr("refinfer.numerics.invariant.tile_kernel", chosen)
    numerics = InvariantNumerics()
    for num_threads in (1, 1, 2):
        for num_kv_heads in (2, 1):
            queries, keys, values = (drawn(1, heads, 4, 8) for heads in (2, num_kv_heads, num_kv_heads))
            with threads(num_threads):
                numerics.attention(queries, keys, values, AttentionLayout(4, 4))
    assert asked == [(2, heads, 8, torch.float64, count) for count in (1, 2) for heads in (2, 1)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(1, 1, 16), (6, 2, 20), (8, 4, 64), (5, 1, 32)])
def test_one_query_takes_the_short_way_to_the_same_bits(num_heads, num_kv_heads, head_dim, dtype):
    keys, values = (drawn(1, num_kv_heads, 192, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    for num_keys in (1, 63, 64, 65, 150):
        query = drawn(1, num_heads, 1, head_dim, dtype=dtype, seed=num_keys)
        own = NUMERICS.attention(query, keys, values, AttentionLayout(1, num_keys))
        rectangle = NUMERICS.attention(
            query.expand(2, -1, -1, -1),
            keys.repeat(2, 1, 1, 1),
            values.repeat(2, 1, 1, 1),
            AttentionLayout(1, num_keys, (0, 0)),
        )
        assert torch.equal(own[0], rectangle[0])
        assert torch.equal(own[0], rectangle[1])


@HALF
@given(
    nums_keys=st.lists(st.one_of(st.integers(1, 64), st.integers(120, 135)), min_size=1, max_size=5),
    widths=st.sampled_from([(8, 4, 64), (6, 2, 20), (5, 1, 32), (1, 1, 16)]),
    dtype=st.sampled_from(DTYPES),
    num_threads=st.sampled_from([1, 1, 1, 2]),
)
def test_requests_that_decode_in_one_call_get_the_bits_that_each_gets_alone(nums_keys, widths, dtype, num_threads):
    """Whether all of them fill as many tiles, as the paged cache hands them out, or not."""
    num_heads, num_kv_heads, head_dim = widths
    most = max(nums_keys)
    queries = drawn(len(nums_keys), num_heads, 1, head_dim, dtype=dtype)
    keys, values = (drawn(len(nums_keys), num_kv_heads, 192, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    for row, num_keys in enumerate(nums_keys):
        for tensor in (keys, values):
            tensor[row, :, num_keys:] = 100.0 * (row + 1)  # what nobody may see
    layout = AttentionLayout(1, most, (0,) * len(nums_keys), tuple(most - num_keys for num_keys in nums_keys))
    with threads(num_threads):
        together = NUMERICS.attention(queries, keys, values, layout)
        for row, num_keys in enumerate(nums_keys):
            own = slice(row, row + 1)
            alone = NUMERICS.attention(
                queries[own].clone(), keys[own, :, :num_keys], values[own, :, :num_keys], AttentionLayout(1, num_keys)
            )
            assert torch.equal(alone[0], together[row]), f"row {row}"

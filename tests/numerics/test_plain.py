"""Each operation of the plain manner: the reference's bits where it has them, the formula's values in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from refinfer.attention_layout import AttentionLayout
from refinfer.config import RopeConfig
from refinfer.numerics import Numerics, PlainNumerics, inverse_frequencies

NUMERICS = PlainNumerics()
HALF_DTYPES = [torch.bfloat16, torch.float16]
REFERENCE_DTYPES = [torch.float32, *HALF_DTYPES]


def drawn(*shape, dtype=torch.float64, seed=0, scale=1.0):
    """Normal values, the same for the same seed."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale).to(dtype)


def test_plain_numerics_is_a_manner():
    assert isinstance(NUMERICS, Numerics)


@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_multiplies_each_row_by_the_stored_weight(has_bias):
    inputs, weight, bias = drawn(3, 5), drawn(4, 5, seed=1), drawn(4, seed=2) * has_bias
    output = NUMERICS.prepare_linear(weight, bias if has_bias else None)(inputs)
    np.testing.assert_allclose(output.numpy(), inputs.numpy() @ weight.numpy().T + bias.numpy(), rtol=1e-13)


@pytest.mark.parametrize("dtype", REFERENCE_DTYPES, ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_rms_norm_matches_reference_bit_for_bit(dtype, scale):
    inputs, weight = drawn(7, 20, dtype=dtype, scale=scale), drawn(20, dtype=dtype, seed=1)
    reference = LlamaRMSNorm(20, eps=1e-5)
    reference.weight = torch.nn.Parameter(weight, requires_grad=False)
    assert torch.equal(NUMERICS.rms_norm(inputs, weight, 1e-5), reference(inputs))


def test_rms_norm_matches_the_formula_in_float64():
    """The reference computes a float64 norm in float32; ours does not."""
    inputs, weight = drawn(7, 20), drawn(20, seed=1)
    x = inputs.numpy()
    expected = weight.numpy() * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(NUMERICS.rms_norm(inputs, weight, 1e-5).numpy(), expected, rtol=1e-14)


def test_rms_norm_of_half_precision_never_overflows():
    inputs = torch.full((1, 8), 400.0, dtype=torch.float16)  # its square is past the largest float16
    output = NUMERICS.rms_norm(inputs, torch.ones(8, dtype=torch.float16), 1e-5)
    assert torch.equal(output, torch.ones(1, 8, dtype=torch.float16))


@pytest.mark.parametrize("dtype", [*REFERENCE_DTYPES, torch.float64], ids=str)
def test_rms_norm_of_zeros_is_zero(dtype):
    output = NUMERICS.rms_norm(torch.zeros(2, 8, dtype=dtype), torch.ones(8, dtype=dtype), 1e-5)
    assert torch.equal(output, torch.zeros(2, 8, dtype=dtype))


@pytest.mark.parametrize("dtype", REFERENCE_DTYPES, ids=str)
def test_rotary_tables_match_reference_bit_for_bit(dtype):
    positions = torch.tensor([0, 1, 2, 255, 257, 4099, 131071])
    config = LlamaConfig(hidden_size=16, num_attention_heads=1)
    expected = LlamaRotaryEmbedding(config)(torch.zeros(1, dtype=dtype), positions[None])
    tables = NUMERICS.rotary_tables(positions, inverse_frequencies(RopeConfig(), 16, torch.float32), dtype)
    for ours, theirs in zip(tables, expected, strict=True):
        assert ours.dtype == dtype
        assert torch.equal(ours, theirs[0])


@pytest.mark.parametrize("dtype", HALF_DTYPES, ids=str)
def test_rotary_tables_of_half_precision_tell_late_positions_apart(dtype):
    """In bfloat16 itself, 1000 and 1001 are one number; angles have to be computed wider."""
    frequencies = inverse_frequencies(RopeConfig(), 16, torch.float32)
    cos, _ = NUMERICS.rotary_tables(torch.tensor([1000, 1001]), frequencies, dtype)
    assert abs(float(cos[0, 0]) - np.cos(1000.0)) < 4e-3
    assert abs(float(cos[1, 0]) - np.cos(1001.0)) < 4e-3


def test_rotate_matches_reference_bit_for_bit():
    queries, keys = drawn(5, 3, 8, dtype=torch.float32), drawn(5, 2, 8, dtype=torch.float32, seed=1)
    frequencies = inverse_frequencies(RopeConfig(), 8, torch.float32)
    cos, sin = NUMERICS.rotary_tables(torch.arange(5), frequencies, torch.float32)
    expected = apply_rotary_pos_emb(queries[None], keys[None], cos[None], sin[None], unsqueeze_dim=2)
    assert torch.equal(NUMERICS.rotate(queries, cos, sin), expected[0][0])
    assert torch.equal(NUMERICS.rotate(keys, cos, sin), expected[1][0])


@settings(deadline=None)
@given(query_at=st.integers(0, 500), key_at=st.integers(0, 500), shift=st.integers(0, 500))
def test_shift_of_both_positions_does_not_change_their_product(query_at, key_at, shift):
    """What rotary positions are for: only the distance between query and key counts."""
    frequencies = inverse_frequencies(RopeConfig(), 8, torch.float64)
    vectors = drawn(2, 1, 8)

    def product(positions):
        cos, sin = NUMERICS.rotary_tables(torch.tensor(positions), frequencies, torch.float64)
        query, key = NUMERICS.rotate(vectors, cos, sin)
        return float((query * key).sum())

    assert product([query_at, key_at]) == pytest.approx(product([query_at + shift, key_at + shift]), abs=1e-10)


def test_silu_matches_the_formula_in_float64():
    inputs = torch.linspace(-30, 30, 101, dtype=torch.float64)[None]
    x = inputs.numpy()
    np.testing.assert_allclose(NUMERICS.silu(inputs).numpy(), x / (1 + np.exp(-x)), rtol=1e-13, atol=1e-300)


def formula_attention(queries, keys, values, mask):
    """Softmax attention in NumPy, head by head and query by query."""
    batch, num_heads, q_len, head_dim = queries.shape
    share = num_heads // keys.shape[1]
    output = np.zeros(queries.shape)
    for row, head, query in np.ndindex(batch, num_heads, q_len):
        seen = mask[row, 0, query]
        scores = keys[row, head // share][seen] @ queries[row, head, query] / np.sqrt(head_dim)
        weights = np.exp(scores - scores.max())
        output[row, head, query] = weights @ values[row, head // share][seen] / weights.sum()
    return output


shapes = st.fixed_dictionaries(
    {
        "num_kv_heads": st.integers(1, 3),
        "share": st.integers(1, 3),
        "q_len": st.integers(1, 6),
        "num_past": st.integers(0, 6),
        "head_dim": st.sampled_from([1, 2, 4, 6, 20]),
        "batch": st.integers(1, 2),
        "seed": st.integers(0, 99),
    }
)


def drawn_attention_inputs(shape, dtype=torch.float64):
    """Queries, keys and values of a drawn shape."""
    kv_len = shape["q_len"] + shape["num_past"]
    widths = [(shape["num_kv_heads"] * shape["share"], shape["q_len"])] + [(shape["num_kv_heads"], kv_len)] * 2
    return [
        drawn(shape["batch"], heads, length, shape["head_dim"], dtype=dtype, seed=3 * shape["seed"] + index)
        for index, (heads, length) in enumerate(widths)
    ]


@settings(deadline=None)
@given(shape=shapes)
def test_attention_without_padding_is_causal_and_aligned_at_the_end(shape):
    queries, keys, values = drawn_attention_inputs(shape)
    q_len, kv_len = queries.shape[2], keys.shape[2]
    mask = np.tril(np.ones((q_len, kv_len), dtype=bool), kv_len - q_len)
    mask = np.broadcast_to(mask, (shape["batch"], 1, q_len, kv_len))
    expected = formula_attention(queries.numpy(), keys.numpy(), values.numpy(), mask)
    layout = AttentionLayout(q_len, kv_len, (0,) * shape["batch"])
    np.testing.assert_allclose(NUMERICS.attention(queries, keys, values, layout).numpy(), expected, atol=1e-12)


@settings(deadline=None)
@given(shape=shapes, data=st.data())
def test_attention_looks_neither_at_padding_nor_at_room(shape, data):
    queries, keys, values = drawn_attention_inputs(shape)
    kv_len = keys.shape[2]
    num_keys = data.draw(st.integers(queries.shape[2], kv_len), label="written columns")
    paddings = st.lists(st.integers(0, num_keys - 1), min_size=shape["batch"], max_size=shape["batch"])
    layout = AttentionLayout(queries.shape[2], num_keys, tuple(data.draw(paddings, label="padding")))
    mask = np.zeros((shape["batch"], 1, queries.shape[2], kv_len), dtype=bool)
    mask[..., :num_keys] = layout.mask.numpy()
    expected = formula_attention(queries.numpy(), keys.numpy(), values.numpy(), mask)
    output = NUMERICS.attention(queries, keys, values, layout)
    np.testing.assert_allclose(output.numpy(), expected, atol=1e-12)


@settings(deadline=None)
@given(shape=shapes)
def test_attention_of_float32_stays_near_float64(shape):
    queries, keys, values = drawn_attention_inputs(shape, torch.float32)
    layout = AttentionLayout(queries.shape[2], keys.shape[2], (0,) * shape["batch"])
    exact = NUMERICS.attention(queries.double(), keys.double(), values.double(), layout)
    assert (NUMERICS.attention(queries, keys, values, layout) - exact).abs().max() < 2e-6

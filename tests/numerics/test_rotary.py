"""Rotary frequencies: the reference's bits in float32, the formula's values in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from refinfer.config import RopeConfig
from refinfer.config.rope_config import SUPPORTED_ROPE_TYPES
from refinfer.errors import UnsupportedModelError
from refinfer.numerics import inverse_frequencies

head_dims = st.integers(1, 64).map(lambda half: 2 * half)
thetas = st.sampled_from([10000.0, 500000.0, 100000.0, 17.5, 1e6])
factors = st.sampled_from([1.0, 2.0, 8.0, 32.0, 2.5])
ropes = st.one_of(
    st.builds(RopeConfig, rope_theta=thetas),
    st.builds(RopeConfig, rope_type=st.just("linear"), rope_theta=thetas, factor=factors),
    st.builds(
        RopeConfig,
        rope_type=st.just("llama3"),
        rope_theta=thetas,
        factor=factors,
        low_freq_factor=st.sampled_from([1.0, 0.5, 2.0]),
        high_freq_factor=st.sampled_from([4.0, 3.0, 16.0]),
        original_max_position_embeddings=st.sampled_from([8192.0, 64.0, 16.0]),
    ),
)


def reference_frequencies(rope, head_dim):
    """The buffer of the reference's rotary module."""
    parameters = {name: value for name, value in vars(rope).items() if value}
    parameters["original_max_position_embeddings"] = int(rope.original_max_position_embeddings)
    config = LlamaConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim, rope_parameters=parameters)
    return LlamaRotaryEmbedding(config).inv_freq


def formula_frequencies(rope, head_dim):
    """The three formulas in NumPy float64, pair by pair."""
    frequencies = []
    for pair in range(head_dim // 2):
        frequency = rope.rope_theta ** (-2 * pair / head_dim)
        if rope.rope_type == "linear":
            frequency /= rope.factor
        if rope.rope_type == "llama3":
            turns = rope.original_max_position_embeddings * frequency / (2 * np.pi)
            share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
            share = min(max(share, 0.0), 1.0)
            frequency = (1 - share) * frequency / rope.factor + share * frequency
        frequencies.append(frequency)
    return np.array(frequencies)


@settings(deadline=None)
@given(rope=ropes, head_dim=head_dims)
def test_inverse_frequencies_match_reference_bit_for_bit(rope, head_dim):
    ours = inverse_frequencies(rope, head_dim, torch.float32)
    assert ours.dtype == torch.float32
    assert torch.equal(ours, reference_frequencies(rope, head_dim))


@settings(deadline=None)
@given(rope=ropes, head_dim=head_dims)
def test_inverse_frequencies_match_the_formula_in_float64(rope, head_dim):
    ours = inverse_frequencies(rope, head_dim, torch.float64)
    assert ours.dtype == torch.float64
    np.testing.assert_allclose(ours.numpy(), formula_frequencies(rope, head_dim), rtol=1e-13)


@pytest.mark.parametrize("rope_type", SUPPORTED_ROPE_TYPES)
def test_every_supported_rope_type_has_frequencies(rope_type):
    rope = RopeConfig(rope_type, 10000.0, 8.0, 1.0, 4.0, 64.0)
    assert inverse_frequencies(rope, 64, torch.float64).shape == (32,)


def test_inverse_frequencies_refuse_a_rope_type_without_a_formula():
    words = "RoPE type 'yarn' has no frequencies; .* default, linear and llama3"
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        inverse_frequencies(RopeConfig("yarn", factor=2.0), 64, torch.float64)
    assert caught.value.rope_type == "yarn"


def test_llama3_scaling_leaves_fast_pairs_and_divides_slow_ones():
    rope = RopeConfig("llama3", 10000.0, 8.0, 1.0, 4.0, 64.0)
    plain = inverse_frequencies(RopeConfig(), 64, torch.float64)
    ratio = plain / inverse_frequencies(rope, 64, torch.float64)
    assert ratio[0] == 1.0
    assert ratio[-1] == pytest.approx(8.0)
    assert ratio.diff().min() >= -1e-12, "the share that is scaled grows with the wavelength"
    assert ((ratio > 1.001) & (ratio < 7.999)).any(), "the band in between is reached"

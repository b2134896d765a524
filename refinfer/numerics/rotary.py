"""Rotary frequencies, with the scalings that stretch them to longer texts."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from refinfer.config import RopeConfig
from refinfer.errors import UnsupportedModelError


def inverse_frequencies(rope: RopeConfig, head_dim: int, dtype: torch.dtype) -> Float[Tensor, " half_head_dim"]:
    """Computes the angle per position of each pair of dimensions, in radians.

    Pair i turns by theta^(-2i / head_dim) for each position (Su et al. 2021, RoFormer, equation 15).
    "linear" divides every angle by the factor (Chen et al. 2023, Position Interpolation).
    "llama3" divides only slow pairs, see `_llama3_scaled`.

    Args:
        rope: The checkpoint's rotary settings.
        head_dim: Width of one head.
        dtype: float32, or float64 for a float64 model.

    Raises:
        UnsupportedModelError: The RoPE type has no formula here.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(dtype) / head_dim
    frequencies = 1.0 / (rope.rope_theta**exponents)
    match rope.rope_type:
        case "default":
            return frequencies
        case "linear":
            return frequencies / rope.factor
        case "llama3":
            return _llama3_scaled(frequencies, rope)
        case rope_type:
            message = f"RoPE type {rope_type!r} has no frequencies; those that have are default, linear and llama3"
            raise UnsupportedModelError(message, rope_type=rope_type)


def _llama3_scaled(frequencies: Float[Tensor, " half_head_dim"], rope: RopeConfig) -> Float[Tensor, " half_head_dim"]:
    """Scales in three bands of wavelength, as Llama 3.1 and 3.2 were trained.

    A wavelength is the number of positions of one full turn. With L the original length:
    above L / low_freq_factor the angle is divided by the factor; below L / high_freq_factor it stays;
    in between the two are mixed, linearly in L / wavelength.
    """
    original_length = rope.original_max_position_embeddings
    wavelengths = 2 * math.pi / frequencies
    share_unscaled = (original_length / wavelengths - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    mixed = (1 - share_unscaled) * frequencies / rope.factor + share_unscaled * frequencies
    is_slow = wavelengths > original_length / rope.low_freq_factor
    is_fast = wavelengths < original_length / rope.high_freq_factor
    return torch.where(is_slow, frequencies / rope.factor, torch.where(is_fast, frequencies, mixed))

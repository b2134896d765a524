"""Rotary positions: the tables of a step, and the turning of queries and keys."""

import torch
from torch import nn

from refinfer.config import ModelConfig
from refinfer.numerics import Numerics, compute_dtype, inverse_frequencies
from refinfer.shapes import Keys, PositionIds, Queries, RotaryTable


class RotaryEmbedding(nn.Module):
    """Gives the cosine and sine tables that every layer of a step shares.

    Args:
        config: The model's shape and rotary settings.
        dtype: Dtype of the tables; the angles themselves are at least float32.
        numerics: The manner that computes angles.
    """

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, numerics: Numerics) -> None:
        super().__init__()
        self.frequencies = inverse_frequencies(config.rope, config.head_dim, compute_dtype(dtype))
        self.dtype = dtype
        self.numerics = numerics

    def forward(self, position_ids: PositionIds) -> tuple[RotaryTable, RotaryTable]:
        """Gives cosine and sine for each token's position in its own request."""
        return self.numerics.rotary_tables(position_ids, self.frequencies, self.dtype)


class RotaryTurn(nn.Module):
    """Turns queries and keys to their positions; a module of its own so that hooks see the result.

    Args:
        numerics: The manner that multiplies.
    """

    def __init__(self, *, numerics: Numerics) -> None:
        super().__init__()
        self.numerics = numerics

    def forward(self, queries: Queries, keys: Keys, cos: RotaryTable, sin: RotaryTable) -> tuple[Queries, Keys]:
        """Gives rotated queries and rotated keys."""
        return self.numerics.rotate(queries, cos, sin), self.numerics.rotate(keys, cos, sin)

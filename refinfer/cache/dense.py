"""Small moves between packed tokens and dense rectangles, and memory that shows when it is read unwritten."""

import torch
from jaxtyping import Float
from torch import Tensor

from refinfer.shapes import DenseQueries, Queries


def unwritten(*shape: int, dtype: torch.dtype) -> Tensor:
    """Allocates memory full of NaN, so that reading a place nobody wrote cannot go unseen."""
    return torch.full(shape, float("nan"), dtype=dtype)


def to_dense(packed: Float[Tensor, "length any_heads head_dim"]) -> Float[Tensor, "1 any_heads length head_dim"]:
    """Lays the packed tokens of one request out as a rectangle of one row."""
    return packed.transpose(0, 1)[None]


def to_packed(dense: DenseQueries) -> Queries:
    """Takes a rectangle of one row back to packed tokens."""
    return dense[0].transpose(0, 1)

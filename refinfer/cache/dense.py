"""Small moves between packed tokens and dense rectangles, and memory that shows when it is read unwritten."""

import torch
from jaxtyping import Float
from torch import Tensor

from refinfer.shapes import DenseQueries, Queries


def unwritten(*shape: int, dtype: torch.dtype) -> Tensor:
    """Allocates memory full of NaN, so that reading a place nobody wrote cannot go unseen."""
    return torch.full(shape, float("nan"), dtype=dtype)


def to_dense(
    packed: Float[Tensor, "tokens any_heads head_dim"], num_rows: int = 1
) -> Float[Tensor, "batch any_heads length head_dim"]:
    """Lays packed tokens out as a rectangle: those of one request, or one token of each of several."""
    return packed.reshape(num_rows, -1, *packed.shape[1:]).transpose(1, 2)


def to_packed(dense: DenseQueries) -> Queries:
    """Takes a rectangle back to packed tokens, row after row."""
    return dense.transpose(1, 2).flatten(0, 1)

"""How alike are two tensors, position by position: the same bits, near, or other values?"""

import math
from collections.abc import Iterator
from enum import IntEnum

import torch
from torch import Tensor

from oracle.tolerances import NOISE_FACTOR, SMALLEST_NOISE_IN_EPS

NEAR_IN_EPS = NOISE_FACTOR * SMALLEST_NOISE_IN_EPS
"""Units in the last place of the largest value, up to which a difference is said to be near."""


class Likeness(IntEnum):
    """How alike two sides are, the worst last."""

    BITS = 0
    NEAR = 1
    OTHER = 2


def likenesses(one: Tensor, other: Tensor, eps: float) -> Iterator[tuple[int, float, Likeness]]:
    """Gives each row that is not worth passing over: its place, the largest difference in it, and how alike it is.

    Values of other shapes are other values, infinitely far off.

    Args:
        one: One side, first axis positions.
        other: The other, likewise; what is longer is cut.
        eps: How far apart the next numbers of their dtype lie, at 1; 0 where nothing is rounded.
    """
    num_rows = min(len(one), len(other))
    if one.shape[1:] != other.shape[1:]:
        yield from ((place, math.inf, Likeness.OTHER) for place in range(num_rows))
        return
    one, other = one[:num_rows], other[:num_rows]
    if not num_rows or torch.equal(one, other):
        return
    is_rounded = one.is_floating_point() and other.is_floating_point()
    finite = other[other.isfinite()].abs().to(torch.float64)
    bound = NEAR_IN_EPS * eps * float(finite.max()) if is_rounded and len(finite) else 0.0
    one, other = (side.reshape(num_rows, -1).to(torch.float64) for side in (one, other))
    is_same = (one == other) | (one.isnan() & other.isnan())
    for place, gap in enumerate(torch.where(is_same, 0.0, (one - other).abs()).amax(dim=1).tolist()):
        if gap != 0:
            yield place, gap, Likeness.NEAR if gap <= bound else Likeness.OTHER


def larger(one: float, other: float) -> float:
    """Gives the larger of two differences; what is not a number is larger than any."""
    return other if math.isnan(other) or other > one else one

"""RMSNorm: a row divided by its root mean square."""

import torch
from torch import nn

from refinfer.model.linear import unloaded_parameter
from refinfer.numerics import Numerics
from refinfer.shapes import HiddenStates


class RMSNorm(nn.Module):
    """Root mean square norm (Zhang & Sennrich 2019, equation 4) with a learned scale.

    Args:
        width: Width of a row.
        eps: Added to the mean square, so that a row of zeros stays finite.
        dtype: Dtype of the scale.
        numerics: The manner that adds up.
    """

    def __init__(self, width: int, *, eps: float, dtype: torch.dtype, numerics: Numerics) -> None:
        super().__init__()
        self.weight = unloaded_parameter(width, dtype=dtype)
        self.eps = eps
        self.numerics = numerics

    def forward(self, hidden_states: HiddenStates) -> HiddenStates:
        """Computes weight · x / sqrt(mean(x²) + eps)."""
        return self.numerics.rms_norm(hidden_states, self.weight, self.eps)

"""The gated MLP of a layer (SwiGLU)."""

import torch
from torch import nn

from refinfer.config import ModelConfig
from refinfer.model.linear import Linear
from refinfer.numerics import Numerics
from refinfer.shapes import HiddenStates


class LlamaMLP(nn.Module):
    """Computes down(silu(gate(x)) · up(x)) (Shazeer 2020, GLU Variants, equation 6).

    Args:
        config: The model's shape.
        dtype: Dtype of the weights.
        numerics: The manner that computes.
    """

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, numerics: Numerics) -> None:
        super().__init__()
        hidden, intermediate = config.hidden_size, config.intermediate_size
        has_bias = config.mlp_bias
        self.gate_proj = Linear(hidden, intermediate, has_bias=has_bias, dtype=dtype, numerics=numerics)
        self.up_proj = Linear(hidden, intermediate, has_bias=has_bias, dtype=dtype, numerics=numerics)
        self.down_proj = Linear(intermediate, hidden, has_bias=has_bias, dtype=dtype, numerics=numerics)
        self.numerics = numerics

    def forward(self, hidden_states: HiddenStates) -> HiddenStates:
        """Gives what the MLP adds to the residual stream."""
        gate = self.numerics.silu(self.gate_proj(hidden_states))
        output: HiddenStates = self.down_proj(gate * self.up_proj(hidden_states))
        return output

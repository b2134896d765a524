"""Grouped-query attention of one layer, which leaves the past to an attention view."""

import torch
from torch import nn

from refinfer.config import ModelConfig
from refinfer.interfaces import AttentionView
from refinfer.model.linear import Linear
from refinfer.model.rope import RotaryTurn
from refinfer.numerics import Numerics
from refinfer.shapes import HiddenStates, Keys, Queries, RotaryTable, Values


class AttentionCore(nn.Module):
    """Asks the attention view for per-head output; a module of its own so that hooks see it.

    Args:
        layer_index: Which layer this is, counted from 0.
        numerics: The manner that attends.
    """

    def __init__(self, layer_index: int, *, numerics: Numerics) -> None:
        super().__init__()
        self.layer_index = layer_index
        self.numerics = numerics

    def forward(self, queries: Queries, keys: Keys, values: Values, attention_view: AttentionView) -> Queries:
        """Gives the attention output of each head, before the output projection."""
        return attention_view.attend(self.layer_index, queries, keys, values, self.numerics.attention)


class LlamaAttention(nn.Module):
    """Attention with rotary positions, in which several query heads share a key/value head.

    Args:
        config: The model's shape.
        layer_index: Which layer this is, counted from 0.
        dtype: Dtype of the weights.
        numerics: The manner that computes.
    """

    def __init__(self, config: ModelConfig, layer_index: int, *, dtype: torch.dtype, numerics: Numerics) -> None:
        super().__init__()
        hidden, has_bias = config.hidden_size, config.attention_bias
        heads_width = config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        self.q_proj = Linear(hidden, heads_width, has_bias=has_bias, dtype=dtype, numerics=numerics)
        self.k_proj = Linear(hidden, kv_width, has_bias=has_bias, dtype=dtype, numerics=numerics)
        self.v_proj = Linear(hidden, kv_width, has_bias=has_bias, dtype=dtype, numerics=numerics)
        self.o_proj = Linear(heads_width, hidden, has_bias=has_bias, dtype=dtype, numerics=numerics)
        self.rope = RotaryTurn(numerics=numerics)
        self.core = AttentionCore(layer_index, numerics=numerics)
        self.head_dim = config.head_dim

    def forward(
        self, hidden_states: HiddenStates, cos: RotaryTable, sin: RotaryTable, attention_view: AttentionView
    ) -> HiddenStates:
        """Gives what attention adds to the residual stream."""
        queries = self.q_proj(hidden_states).unflatten(-1, (-1, self.head_dim))  # tokens heads head_dim
        keys = self.k_proj(hidden_states).unflatten(-1, (-1, self.head_dim))  # tokens kv_heads head_dim
        values = self.v_proj(hidden_states).unflatten(-1, (-1, self.head_dim))  # tokens kv_heads head_dim
        queries, keys = self.rope(queries, keys, cos, sin)
        per_head_output = self.core(queries, keys, values, attention_view)
        output: HiddenStates = self.o_proj(per_head_output.flatten(1))  # tokens hidden
        return output

"""Faults of the network itself: norm, activation, heads, scale."""

import torch
from torch import Tensor
from torch.nn import functional

from oracle.faults.registry import MANNERS, Area, Fault, Replacement, attention_fault, one_replacement
from refinfer.attention_layout import AttentionLayout
from refinfer.interfaces import AttentionFunction
from refinfer.model.mlp import LlamaMLP
from refinfer.model.norm import RMSNorm
from refinfer.numerics.plain import PlainNumerics


@one_replacement(
    "norm_epsilon",
    Area.MODEL,
    "the norm's epsilon is 1e-6 whatever config.json says",
    RMSNorm,
    "forward",
    models=("ggml-org/llama.cpp#2373 (1.09)", "huggingface/candle#271 (1.09)"),
    component=("model/norm.py",),
    needs=(),
    seen_by=("reference logits",),
)
def norm_epsilon(self: RMSNorm, hidden_states: Tensor) -> Tensor:
    """Normalises with a constant of the code."""
    return self.numerics.rms_norm(hidden_states, self.weight, 1e-6)


@one_replacement(
    "norm_in_half_precision",
    Area.MODEL,
    "the norm adds up squares in the model's half precision",
    PlainNumerics,
    "rms_norm",
    models=("meta-llama/llama#1048 (3.12)", "pytorch/pytorch#133085 (3.12)"),
    component=("numerics/plain.py",),
    needs=("half precision",),
    seen_by=("reference logits",),
)
def norm_in_half_precision(self: PlainNumerics, inputs: Tensor, weight: Tensor, eps: float) -> Tensor:  # noqa: ARG001
    """Normalises without widening."""
    mean_square = torch.zeros_like(inputs[:, :1])
    for column in torch.split(inputs, 1, dim=1):
        mean_square += column * column / inputs.shape[1]
    return weight * (inputs * torch.rsqrt(mean_square + eps))


def _gelu(self: PlainNumerics, inputs: Tensor) -> Tensor:  # noqa: ARG001
    """Applies another activation that looks alike."""
    return functional.gelu(inputs)


activation_gelu = Fault(
    "activation_gelu",
    Area.MODEL,
    "the gate goes through GELU instead of SiLU",
    tuple(Replacement(owner, "silu", _gelu) for owner in MANNERS),
    models=None,
    component=("model/mlp.py", "numerics/plain.py", "numerics/invariant.py"),
    needs=(),
    seen_by=("reference logits", "greedy"),
)


@one_replacement(
    "gate_and_up_swapped",
    Area.MODEL,
    "the two halves of the gated MLP are swapped",
    LlamaMLP,
    "forward",
    models=None,
    component=("model/mlp.py",),
    needs=(),
    seen_by=("reference logits", "greedy"),
)
def gate_and_up_swapped(self: LlamaMLP, hidden_states: Tensor) -> Tensor:
    """Gates with the wrong projection."""
    gate = self.numerics.silu(self.up_proj(hidden_states))
    output: Tensor = self.down_proj(gate * self.gate_proj(hidden_states))
    return output


@attention_fault(
    "kv_heads_tiled",
    Area.MODEL,
    "key/value heads are paired 0,1,0,1 with query heads that are grouped 0,0,1,1",
    models=("apple/axlearn#842 (3.07)", "onnx/onnx#7274 (3.07)"),
    component=("model/attention.py", "numerics/plain.py", "numerics/invariant.py"),
    needs=("grouped heads",),
    seen_by=("reference logits", "greedy"),
)
def kv_heads_tiled(
    attend: AttentionFunction, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
) -> Tensor:
    """Repeats the heads as a whole instead of each by itself."""
    times = queries.shape[1] // keys.shape[1]
    return attend(queries, keys.repeat(1, times, 1, 1), values.repeat(1, times, 1, 1), layout)


@attention_fault(
    "attention_scale_missing",
    Area.MODEL,
    "scores are not divided by the root of the head size",
    models=None,
    component=("model/attention.py", "numerics/plain.py", "numerics/invariant.py"),
    needs=(),
    seen_by=("reference logits", "greedy"),
)
def attention_scale_missing(
    attend: AttentionFunction, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
) -> Tensor:
    """Undoes the division."""
    return attend(queries * queries.shape[-1] ** 0.5, keys, values, layout)


FAULTS = (
    norm_epsilon,
    norm_in_half_precision,
    activation_gelu,
    gate_and_up_swapped,
    kv_heads_tiled,
    attention_scale_missing,
)

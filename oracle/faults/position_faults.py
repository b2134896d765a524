"""Faults of positions: rotary pairing, scaling and precision, and position ids."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from oracle.faults.registry import Area, Fault, Replacement, one_replacement
from refinfer.cache.static import StaticCache
from refinfer.config import RopeConfig
from refinfer.model import llama, rope
from refinfer.numerics.plain import PlainNumerics
from refinfer.numerics.rotary import inverse_frequencies

_forward = llama.Llama.forward
_num_computed_tokens: Any = StaticCache.num_computed_tokens


@one_replacement(
    "rope_adjacent_pairs",
    Area.POSITIONS,
    "dimension 2i turns with 2i + 1, although the weights pair i with i + half",
    PlainNumerics,
    "rotate",
    models=("NeuraLegion/shainet#111 (2.05)",),
    component=("numerics/plain.py", "model/rope.py"),
    needs=(),
    seen_by=("reference logits", "greedy"),
)
def rope_adjacent_pairs(self: PlainNumerics, vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # noqa: ARG001
    """Turns neighbours."""
    half = vectors.shape[-1] // 2
    cos, sin = cos[:, None, :half], sin[:, None, :half]
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


@one_replacement(
    "rope_scaling_ignored",
    Area.POSITIONS,
    "declared RoPE scaling is parsed and never applied",
    rope,
    "inverse_frequencies",
    models=("jmaczan/tiny-vllm#1 (2.01)", "Blaizzy/mlx-vlm#1710 (1.07)"),
    component=("model/rope.py", "numerics/rotary.py"),
    needs=("rope scaling",),
    seen_by=("reference logits",),
)
def rope_scaling_ignored(rope_config: RopeConfig, head_dim: int, dtype: torch.dtype) -> Tensor:
    """Computes frequencies as if the type were "default"."""
    return inverse_frequencies(replace(rope_config, rope_type="default"), head_dim, dtype)


@one_replacement(
    "rope_factor_hard_coded",
    Area.POSITIONS,
    "the scaling factor is the 8 of Llama 3.1 whatever config.json says",
    rope,
    "inverse_frequencies",
    models=("meta-llama/llama-models#241 (2.03)",),
    component=("model/rope.py", "numerics/rotary.py"),
    needs=("rope scaling",),
    seen_by=("reference logits",),
)
def rope_factor_hard_coded(rope_config: RopeConfig, head_dim: int, dtype: torch.dtype) -> Tensor:
    """Scales by a constant of the code."""
    return inverse_frequencies(replace(rope_config, factor=8.0), head_dim, dtype)


@one_replacement(
    "rope_angles_in_half_precision",
    Area.POSITIONS,
    "angles are multiplied out in the model's half precision",
    PlainNumerics,
    "rotary_tables",
    models=("huggingface/transformers#29285 (2.06)", "huggingface/candle#3520 (2.07)"),
    component=("numerics/plain.py", "model/rope.py"),
    needs=("half precision",),
    seen_by=("reference logits",),
)
def rope_angles_in_half_precision(
    self: PlainNumerics,  # noqa: ARG001
    position_ids: Tensor,
    frequencies: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Rounds positions and frequencies before they are multiplied."""
    half_angles = position_ids[:, None].to(dtype) * frequencies.to(dtype)
    angles = torch.cat((half_angles, half_angles), dim=-1)
    return angles.cos(), angles.sin()


@one_replacement(
    "chunk_positions_restart",
    Area.POSITIONS,
    "tokens that run after a cached prefix are positioned as if the request began with them",
    llama.Llama,
    "forward",
    models=("InternLM/lmdeploy#1719 (6.26)",),
    component=("engine/model_runner.py", "model/model_input.py", "model/llama.py"),
    needs=("continuous cache",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def chunk_positions_restart(
    self: llama.Llama,
    input_ids: Tensor,
    position_ids: Tensor,
    attention_view: Any,
    logits_rows: Sequence[int] | None = None,
) -> Tensor:
    """Counts positions from the first token of the pass."""
    lengths = getattr(attention_view, "_num_scheduled_tokens", None)
    if lengths is not None:
        position_ids = torch.cat([torch.arange(length) for length in lengths])
    return _forward(self, input_ids, position_ids, attention_view, logits_rows)


shared_positions_under_padding = Fault(
    "shared_positions_under_padding",
    Area.POSITIONS,
    "every row of a left-padded batch decodes at the physical position",
    (Replacement(StaticCache, "num_computed_tokens", property(lambda self: [self.num_columns] * self.batch_size)),),
    models=("unslothai/unsloth#4078 (2.08)",),
    component=("cache/static.py",),
    needs=("static batch",),
    seen_by=("reference logits", "bitwise", "greedy"),
)

decode_position_off_by_one = Fault(
    "decode_position_off_by_one",
    Area.POSITIONS,
    "the first decoded token stands one position too far",
    (
        Replacement(
            StaticCache,
            "num_computed_tokens",
            property(lambda self: [count + 1 for count in _num_computed_tokens.fget(self)]),
        ),
    ),
    models=("huggingface/optimum-tpu#45 (4.04)",),
    component=("cache/static.py",),
    needs=("static batch",),
    seen_by=("reference logits", "bitwise", "greedy"),
)

FAULTS = (
    rope_adjacent_pairs,
    rope_scaling_ignored,
    rope_factor_hard_coded,
    rope_angles_in_half_precision,
    chunk_positions_restart,
    shared_positions_under_padding,
    decode_position_off_by_one,
)

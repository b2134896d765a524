"""Faults of masks: causality and padding."""

import torch
from torch import Tensor

from oracle.faults.registry import Area, one_replacement
from refinfer.cache.static import StaticAttentionView, StaticCache
from refinfer.numerics.plain import PlainNumerics

_attention = PlainNumerics.attention
_attention_view = StaticCache.attention_view


@one_replacement("causal_mask_missing", Area.MASKS, "prompts attend to their own future", PlainNumerics, "attention")
def causal_mask_missing(
    self: PlainNumerics, queries: Tensor, keys: Tensor, values: Tensor, attention_mask: Tensor | None
) -> Tensor:
    """Takes "no mask" at its word."""
    if attention_mask is None:
        attention_mask = torch.ones(1, 1, queries.shape[2], keys.shape[2], dtype=torch.bool)
    return _attention(self, queries, keys, values, attention_mask)


@one_replacement(
    "causal_mask_top_left",
    Area.MASKS,
    "a chunk's causal mask is aligned at the first key instead of the last",
    PlainNumerics,
    "attention",
)
def causal_mask_top_left(
    self: PlainNumerics, queries: Tensor, keys: Tensor, values: Tensor, attention_mask: Tensor | None
) -> Tensor:
    """Bounds the keys by the index inside the chunk."""
    if attention_mask is None and queries.shape[2] > 1:
        attention_mask = torch.ones(queries.shape[2], keys.shape[2], dtype=torch.bool).tril()[None, None]
    return _attention(self, queries, keys, values, attention_mask)


@one_replacement(
    "causal_mask_one_ahead",
    Area.MASKS,
    "each query of a prompt also sees the next token",
    PlainNumerics,
    "attention",
)
def causal_mask_one_ahead(
    self: PlainNumerics, queries: Tensor, keys: Tensor, values: Tensor, attention_mask: Tensor | None
) -> Tensor:
    """Bounds the keys one too late."""
    if attention_mask is None:
        q_len, kv_len = queries.shape[2], keys.shape[2]
        attention_mask = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len + 1)[None, None]
    return _attention(self, queries, keys, values, attention_mask)


@one_replacement(
    "padding_attended",
    Area.MASKS,
    "rows of a left-padded batch attend to their padding",
    StaticCache,
    "attention_view",
)
def padding_attended(self: StaticCache) -> StaticAttentionView:
    """Builds a mask that is causal and nothing else."""
    view = _attention_view(self)
    mask = view._attention_mask  # noqa: SLF001
    q_len, kv_len = mask.shape[2:]
    causal = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len).expand_as(mask)
    return StaticAttentionView(self, view._is_token, causal)  # noqa: SLF001


FAULTS = (causal_mask_missing, causal_mask_top_left, causal_mask_one_ahead, padding_attended)

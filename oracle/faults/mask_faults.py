"""Faults of masks: causality and padding."""

from dataclasses import astuple

from torch import Tensor

from oracle.faults.registry import Area, attention_fault, one_replacement
from refinfer.attention_layout import AttentionLayout
from refinfer.cache.static import StaticAttentionView, StaticCache
from refinfer.interfaces import AttentionFunction

_attention_view = StaticCache.attention_view


class _MaskedLayout(AttentionLayout):
    """A layout whose mask is always asked for."""

    needs_mask = True


class _BlindLayout(_MaskedLayout):
    @property
    def visible_ends(self) -> list[int]:  # type: ignore[override]
        return [self.num_keys] * self.num_queries


class _TopLeftLayout(_MaskedLayout):
    @property
    def visible_ends(self) -> range:
        return range(1, self.num_queries + 1) if self.num_queries > 1 else super().visible_ends


class _OneAheadLayout(_MaskedLayout):
    @property
    def visible_ends(self) -> list[int]:  # type: ignore[override]
        return [min(end + 1, self.num_keys) for end in super().visible_ends]


@attention_fault(
    "causal_mask_missing",
    Area.MASKS,
    "prompts attend to their own future",
    models=("huggingface/transformers#48296 (3.01)",),
    component=("attention_layout.py", "numerics/plain.py", "numerics/invariant.py"),
    needs=(),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def causal_mask_missing(
    attend: AttentionFunction, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
) -> Tensor:
    """Lets every query look at every key."""
    return attend(queries, keys, values, _BlindLayout(*astuple(layout)))


@attention_fault(
    "causal_mask_top_left",
    Area.MASKS,
    "a chunk's causal mask is aligned at the first key instead of the last",
    models=("onnx/onnx#8068 (3.04)", "gittensor-ai-lab/sparkinfer#3 (3.03)"),
    component=("attention_layout.py", "numerics/plain.py", "numerics/invariant.py"),
    needs=("chunks",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def causal_mask_top_left(
    attend: AttentionFunction, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
) -> Tensor:
    """Bounds the keys by the index inside the chunk."""
    return attend(queries, keys, values, _TopLeftLayout(*astuple(layout)))


@attention_fault(
    "causal_mask_one_ahead",
    Area.MASKS,
    "each query of a prompt also sees the next token",
    models=None,
    component=("attention_layout.py", "numerics/plain.py", "numerics/invariant.py"),
    needs=(),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def causal_mask_one_ahead(
    attend: AttentionFunction, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
) -> Tensor:
    """Bounds the keys one too late."""
    return attend(queries, keys, values, _OneAheadLayout(*astuple(layout)))


@one_replacement(
    "padding_attended",
    Area.MASKS,
    "rows of a left-padded batch attend to their padding",
    StaticCache,
    "attention_view",
    models=None,
    component=("cache/static.py",),
    needs=("static batch",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def padding_attended(self: StaticCache) -> StaticAttentionView:
    """Forgets that there is padding."""
    view = _attention_view(self)
    layout = view._layout  # noqa: SLF001
    return StaticAttentionView(
        self,
        view._is_token,  # noqa: SLF001
        AttentionLayout(layout.num_queries, layout.num_keys, (0,) * self.batch_size),
    )


FAULTS = (causal_mask_missing, causal_mask_top_left, causal_mask_one_ahead, padding_attended)

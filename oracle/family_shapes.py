"""Which shapes does each model family come in? The usual tiny one, and variants that its checkpoints are known in."""

from collections.abc import Mapping
from typing import Any

_NO_HEAD_DIM = {"head_dim": None}
_PLAIN_HEADS = {**_NO_HEAD_DIM, "num_key_value_heads": None}
_WINDOW = {"sliding_window": 12}
_ALTERNATING = {**_WINDOW, "layer_types": ["sliding_attention", "full_attention"]}

_MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 8, "mamba_chunk_size": 16}

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": _WINDOW,
    "qwen2": _NO_HEAD_DIM,
    "qwen3": {},
    "gemma": {},
    "gemma2": {**_ALTERNATING, "query_pre_attn_scalar": 32},
    "gemma3_text": {**_ALTERNATING, "query_pre_attn_scalar": 32},
    "phi": {**_NO_HEAD_DIM, "partial_rotary_factor": 0.5},
    "phi3": {**_NO_HEAD_DIM, "pad_token_id": None},
    "gpt2": _PLAIN_HEADS,
    "gpt_neox": {**_PLAIN_HEADS, "rotary_pct": 0.25},
    "opt": {**_PLAIN_HEADS, "ffn_dim": 112, "word_embed_proj_dim": 64},
    "bloom": _PLAIN_HEADS,
    "falcon": {**_PLAIN_HEADS, "new_decoder_architecture": True, "num_kv_heads": 2},
    "stablelm": {**_NO_HEAD_DIM, "partial_rotary_factor": 0.25},
    "starcoder2": {**_NO_HEAD_DIM, **_WINDOW},
    "olmo": _NO_HEAD_DIM,
    "olmo2": _NO_HEAD_DIM,
    "cohere": {**_NO_HEAD_DIM, "logit_scale": 0.5},
    "cohere2": {**_ALTERNATING, "logit_scale": 0.5},
    "granite": {**_NO_HEAD_DIM, "embedding_multiplier": 2.0, "attention_multiplier": 0.2, "residual_multiplier": 0.7},
    "smollm3": {**_NO_HEAD_DIM, "no_rope_layers": [1, 0], "pad_token_id": None},
    "glm": {"pad_token_id": None},
    "glm4": {"pad_token_id": None},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {
        **_NO_HEAD_DIM,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 48,
    },
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    "gpt_oss": {
        **_ALTERNATING,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "mamba": {"state_size": 8},
    "recurrent_gemma": {"attention_window_size": 12, "lru_width": 64, "block_types": ["recurrent", "attention"]},
    "gpt_neo": {**_PLAIN_HEADS, "attention_types": [[["global", "local"], 1]], "window_size": 12},
    "jamba": {
        **_NO_HEAD_DIM,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 8,
        "use_mamba_kernels": False,
    },
    "falcon_h1": {
        **_NO_HEAD_DIM,
        **_MAMBA_2,
        "key_multiplier": 0.5,
        "attention_in_multiplier": 0.7,
        "ssm_in_multiplier": 0.8,
        "embedding_multiplier": 2.0,
    },
    "granitemoehybrid": {
        **_NO_HEAD_DIM,
        **_MAMBA_2,
        "mamba_d_head": "auto",
        "layer_types": ["mamba", "attention"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 48,
        "embedding_multiplier": 2.0,
        "attention_multiplier": 0.2,
    },
    "ernie4_5_moe": {
        **_NO_HEAD_DIM,
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_intermediate_size": 48,
        "moe_num_shared_experts": 1,
        "moe_layer_start_index": 0,
        "moe_layer_end_index": 1,
        "tie_word_embeddings": False,
    },
    "minimax": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "block_size": 16,
    },
}
"""Model families by transformers' names, with what their tiny configurations set besides the common widths.

Sliding windows are so short that most requests go past them. None drops a width that checkpoints of the family do not
name.
"""

COMMON: Mapping[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "pad_token_id": None,
}


_THETA = {"rope_theta": 10000.0}
_LLAMA3_ROPE = {
    "rope_parameters": {
        **_THETA,
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
}
_LINEAR_ROPE = {"rope_parameters": {**_THETA, "rope_type": "linear", "factor": 4.0}}
_YARN_ROPE = {
    "rope_parameters": {**_THETA, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
}
_OTHER_BASE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
_TIED = {"tie_word_embeddings": True}
_UNTIED = {"tie_word_embeddings": False}
_ONE_KEY_HEAD = {"num_key_value_heads": 1}
_ALL_KEY_HEADS = {"num_key_value_heads": 4}
_NO_WINDOW = {"sliding_window": None}
_WINDOW_COMES_LATE = {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1}
_OTHER_WAY_ROUND = {"layer_types": ["full_attention", "sliding_attention"]}
_GELU = {"hidden_act": "gelu"}

VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "llama": {
        "llama3-rope": _LLAMA3_ROPE,
        "tied": _TIED,
        "linear-rope": _LINEAR_ROPE,
        "yarn-rope": _YARN_ROPE,
        "other-rope-base": _OTHER_BASE,
        "biased": {"attention_bias": True, "mlp_bias": True},
        "one-key-head": _ONE_KEY_HEAD,
        "all-key-heads": _ALL_KEY_HEADS,
        "gelu": _GELU,
    },
    "mistral": {"no-window": _NO_WINDOW, "yarn-rope": _YARN_ROPE, "tied": _TIED},
    "qwen2": {
        "late-window": _WINDOW_COMES_LATE,
        "tied": _TIED,
        "yarn-rope": _YARN_ROPE,
        "other-rope-base": _OTHER_BASE,
    },
    "qwen3": {
        "tied": _TIED,
        "yarn-rope": _YARN_ROPE,
        "late-window": _WINDOW_COMES_LATE,
        "biased": {"attention_bias": True},
    },
    "gemma": {"one-key-head": _ONE_KEY_HEAD},
    "gemma2": {
        "other-way-round": _OTHER_WAY_ROUND,
        "no-caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    },
    "gemma3_text": {"other-way-round": _OTHER_WAY_ROUND},
    "phi": {"normed-queries": {"qk_layernorm": True}},
    "phi3": {"window": _WINDOW, "partial-rotary": {"partial_rotary_factor": 0.5}, "tied": _TIED},
    "gpt2": {"scaled-by-layer": {"scale_attn_by_inverse_layer_idx": True}},
    "gpt_neox": {
        "serial": {"use_parallel_residual": False},
        "full-rotary": {"rotary_pct": 1.0},
        "unbiased": {"attention_bias": False},
        "other-gelu": {"hidden_act": "gelu_pytorch_tanh"},
    },
    "opt": {"narrow-embedding": {"word_embed_proj_dim": 32}},
    "bloom": {"residual-after-norm": {"apply_residual_connection_post_layernorm": True}},
    "falcon": {
        "one-key-head": {"new_decoder_architecture": False, "multi_query": True, "num_kv_heads": 1},
        "alibi": {"new_decoder_architecture": False, "multi_query": False, "num_kv_heads": 4, "alibi": True},
        "biased": {"bias": True},
    },
    "stablelm": {
        "biased": {"use_qkv_bias": True},
        "parallel": {"use_parallel_residual": True},
        "normed-queries": {"qk_layernorm": True},
    },
    "starcoder2": {"no-window": _NO_WINDOW, "unbiased": {"use_bias": False}},
    "olmo": {"clipped": {"clip_qkv": 1.0}, "tied": _TIED},
    "olmo2": {"tied": _TIED},
    "cohere": {"normed-queries": {"use_qk_norm": True}},
    "cohere2": {"other-way-round": _OTHER_WAY_ROUND},
    "granite": {"biased": {"attention_bias": True, "mlp_bias": True}, "tied": _TIED},
    "smollm3": {"other-way-round": {"no_rope_layers": [0, 1]}, "untied": _UNTIED},
    "glm": {"full-rotary": {"partial_rotary_factor": 1.0}},
    "glm4": {"full-rotary": {"partial_rotary_factor": 1.0}},
    "mixtral": {"window": _WINDOW, "yarn-rope": _YARN_ROPE, "one-expert": {"num_experts_per_tok": 1}},
    "qwen2_moe": {
        "weights-sum-to-one": {"norm_topk_prob": True},
        "dense-first": {"mlp_only_layers": [0]},
        "yarn-rope": _YARN_ROPE,
    },
    "qwen3_moe": {
        "weights-sum-to-one": {"norm_topk_prob": True},
        "dense-first": {"mlp_only_layers": [0]},
        "yarn-rope": _YARN_ROPE,
    },
    "gpt_oss": {"yarn-rope": {"rope_parameters": {**_YARN_ROPE["rope_parameters"], "truncate": False}}},
    "mamba": {"biased": {"use_bias": True}, "unbiased-convolution": {"use_conv_bias": False}},
    "granitemoehybrid": {"rotary": {"position_embedding_type": "rope"}},
}
"""Variants of families by name, with what each sets besides the usual shape.

Left out are rotary embeddings whose frequencies depend on how long a request has become ("dynamic", "longrope"): keys
that were written before keep theirs, so that a request has no one right answer.
"""

SEPARATOR = ":"
"""Stands between family and variant in the name of a shape."""


def family_of(shape: str) -> str:
    """Gives the family of a shape, such as `llama` of `llama:tied`."""
    return shape.partition(SEPARATOR)[0]


def shapes_of(family: str) -> tuple[str, ...]:
    """Gives the names of a family's shapes, the usual one first; of a shape that is a variant, itself alone."""
    return (family, *(f"{family}{SEPARATOR}{variant}" for variant in VARIANTS.get(family, {})))


def options_of(shape: str) -> Mapping[str, Any] | None:
    """Gives what a shape's configuration sets besides the common widths; None if nobody knows it."""
    family, _, variant = shape.partition(SEPARATOR)
    if family not in FAMILIES or (variant and variant not in VARIANTS.get(family, {})):
        return None
    return {**FAMILIES[family], **(VARIANTS[family][variant] if variant else {})}

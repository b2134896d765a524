"""The contents of a config.json that loads, for tests to change a key of, and those of published models."""

from typing import Any

import pytest

LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}

EVERY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "use_cache": True,
}

LLAMA_2 = EVERY_LLAMA | {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "pretraining_tp": 1,
    "torch_dtype": "float16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}

LLAMA_3 = EVERY_LLAMA | {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}

LLAMA_3_1 = LLAMA_3 | {
    "max_position_embeddings": 131072,
    "rope_scaling": LLAMA3_SCALING,
    "mlp_bias": False,
    "eos_token_id": [128001, 128008, 128009],
}

PUBLISHED = {
    # The first file of its kind: no key/value heads, and a length by another name.
    "llama-1-7b": EVERY_LLAMA
    | {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "rms_norm_eps": 1e-06,
        "max_sequence_length": 2048,
        "pad_token_id": 0,
        "torch_dtype": "float16",
    },
    "llama-2-7b": LLAMA_2,
    "llama-2-70b": LLAMA_2
    | {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    },
    "llama-3-8b": LLAMA_3,
    "llama-3.1-8b": LLAMA_3_1,
    "llama-3.2-1b": LLAMA_3_1
    | {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "head_dim": 64,
        "rope_scaling": LLAMA3_SCALING | {"factor": 32.0},
        "tie_word_embeddings": True,
    },
    "smollm2-135m": EVERY_LLAMA
    | {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-05,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100000,
        "is_llama_config": True,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "eos_token_id": 0,
    },
    "tinyllama-1.1b": LLAMA_2
    | {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
    },
}
"""Shapes of published models, as their files have them."""


@pytest.fixture(params=PUBLISHED)
def published_config(request) -> dict[str, Any]:
    """One published config.json after the other."""
    return dict(PUBLISHED[request.param])


@pytest.fixture
def raw_config() -> dict[str, Any]:
    """A small Llama with every key that has to be there, and none that has not."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 97,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    }

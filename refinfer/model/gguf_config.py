"""A GGUF file's metadata, told in the words of config.json."""

from collections.abc import Mapping
from typing import Any

from refinfer.errors import CheckpointError, UnsupportedModelError

_ARCHITECTURE = "llama"

_READ_KEYS = {
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
}
"""Settings of the architecture that are read, or that say nothing about what the network computes."""

_NEUTRAL_VALUES_BY_KEY: dict[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.sliding_window": (0,),
    "rope.scale_linear": (1.0,),
    "tensor_data_layout": ("Meta AI original pth",),
}
"""Settings that change what the network computes, with the values at which they change nothing."""

_ROPE_FACTORS = "rope_freqs.weight"
"""How llama.cpp stores llama3 scaling: one factor for each frequency, from which its settings cannot be read back."""

_DEFAULT_ROPE_THETA = 10000.0
"""What llama.cpp takes where a file names no rope.freq_base."""


class Metadata:
    """The key-value pairs of a GGUF file.

    Args:
        value_by_key: The pairs.
        name: The file's name, for messages.
    """

    def __init__(self, value_by_key: Mapping[str, Any], name: str) -> None:
        self._value_by_key = value_by_key
        self.name = name

    def get(self, key: str, default: object = None) -> Any:
        """Gives the value of a full key such as "general.architecture"."""
        return self._value_by_key.get(key, default)

    def setting(self, key: str, default: object = None) -> Any:
        """Gives a setting of the architecture, such as "block_count".

        Raises:
            CheckpointError: It is absent and there is no default.
        """
        value = self.get(f"{_ARCHITECTURE}.{key}", default)
        if value is None:
            message = f"{self.name} has no {_ARCHITECTURE}.{key}; the file is incomplete, so take another copy of it"
            raise CheckpointError(message, key=key)
        return value

    def setting_keys(self) -> list[str]:
        """Names the settings of the architecture that the file has."""
        start = f"{_ARCHITECTURE}."
        return [key.removeprefix(start) for key in self._value_by_key if key.startswith(start)]


def raw_config(metadata: Metadata, *, weight_names: set[str]) -> dict[str, Any]:
    """Gives the contents of config.json for a Llama model.

    Args:
        metadata: The file's key-value pairs.
        weight_names: Names of its weights, as the file has them.

    Raises:
        UnsupportedModelError: The file holds another architecture, or a setting that is not implemented.
        CheckpointError: A setting is absent.
    """
    _refuse_other_models(metadata)
    if _ROPE_FACTORS in weight_names:
        message = f"{metadata.name} holds {_ROPE_FACTORS}: llama3 RoPE scaling, which is not read from GGUF files"
        raise UnsupportedModelError(message, name=_ROPE_FACTORS)
    num_heads = metadata.setting("attention.head_count")
    hidden_size = metadata.setting("embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": _vocab_size(metadata),
        "hidden_size": hidden_size,
        "intermediate_size": metadata.setting("feed_forward_length"),
        "num_hidden_layers": metadata.setting("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": metadata.setting("attention.head_count_kv", num_heads),
        "head_dim": _head_dim(metadata, default=hidden_size // num_heads),
        "hidden_act": "silu",
        "max_position_embeddings": metadata.setting("context_length"),
        "rms_norm_eps": metadata.setting("attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope_parameters(metadata),
        "tie_word_embeddings": "output.weight" not in weight_names,
        "attention_bias": any(name.endswith(".attn_q.bias") for name in weight_names),
        "mlp_bias": any(name.endswith(".ffn_up.bias") for name in weight_names),
        "dtype": "float32",
        **raw_generation_config(metadata),
    }


def raw_generation_config(metadata: Metadata) -> dict[str, Any]:
    """Gives the contents of generation_config.json: which ids begin, end and pad a text.

    A file may name an end of turn and an end of message beside the end of text; each ends an answer.
    """
    named = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    eos_token_ids = list(dict.fromkeys(token_id for token_id in named if token_id is not None))
    values = {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": eos_token_ids[0] if len(eos_token_ids) == 1 else eos_token_ids or None,
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }
    return {name: value for name, value in values.items() if value is not None}


def _refuse_other_models(metadata: Metadata) -> None:
    architecture = metadata.get("general.architecture")
    if architecture != _ARCHITECTURE:
        message = f"{metadata.name} holds architecture {architecture!r}; only {_ARCHITECTURE!r} is implemented"
        raise UnsupportedModelError(message, architecture=architecture)
    for key in metadata.setting_keys():
        value = metadata.setting(key)
        if key not in _READ_KEYS and value not in _NEUTRAL_VALUES_BY_KEY.get(key, ()):
            message = f"{metadata.name} sets {_ARCHITECTURE}.{key} to {value!r}, which is not implemented"
            raise UnsupportedModelError(message, key=key, value=value)


def _vocab_size(metadata: Metadata) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    return int(metadata.setting("vocab_size", len(tokens) or None))


def _head_dim(metadata: Metadata, *, default: int) -> int:
    """Gives the width of a head, which keys, values and rotary positions must agree on."""
    keys = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    width_by_key = {key: metadata.setting(key, default) for key in keys}
    if len(set(width_by_key.values())) > 1:
        message = f"{metadata.name} has {width_by_key}; heads with different widths are not implemented"
        raise UnsupportedModelError(message, widths=width_by_key)
    return int(width_by_key["attention.key_length"])


def _rope_parameters(metadata: Metadata) -> dict[str, Any]:
    parameters = {"rope_type": "default", "rope_theta": metadata.setting("rope.freq_base", _DEFAULT_ROPE_THETA)}
    scaling = metadata.setting("rope.scaling.type", "none")
    if scaling == "linear":
        return parameters | {"rope_type": "linear", "factor": metadata.setting("rope.scaling.factor")}
    if scaling != "none":
        message = f"{metadata.name} has RoPE scaling {scaling!r}; of GGUF files, only 'none' and 'linear' are read"
        raise UnsupportedModelError(message, scaling=scaling)
    return parameters

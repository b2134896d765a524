"""The shape of a Llama model, read from config.json and refused by name where it is not implemented."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from refinfer.config.json_file import read_json_object
from refinfer.config.rope_config import DEFAULT_MAX_POSITION_EMBEDDINGS, RopeConfig
from refinfer.errors import ConfigError, UnsupportedModelError

CONFIG_FILE = "config.json"

_ARCHITECTURES = ("LlamaForCausalLM", "LLaMAForCausalLM")
"""Two spellings of one name; the second is that of the first converted files."""

_MODEL_TYPE = "llama"
_ACTIVATIONS = ("silu", "swish")
"""Two names of one function, x · sigmoid(x)."""

_NEUTRAL_VALUES_BY_KEY: dict[str, tuple[Any, ...]] = {
    "use_sliding_window": (None, False),
    "quantization_config": (None, {}),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "use_qk_norm": (None, False),
    "num_local_experts": (None, 0, 1),
    "is_encoder_decoder": (None, False),
}
"""Settings that change what the network computes, with the values at which they change nothing."""

_DTYPE_BY_SPELLING = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "fp64": "float64",
}
"""Other names that files have for dtypes."""


@dataclass(frozen=True)
class ModelConfig:
    """Widths and settings of one Llama model.

    Attributes:
        vocab_size: Number of token ids.
        hidden_size: Width of the residual stream.
        intermediate_size: Inner width of the MLP.
        num_layers: Number of decoder layers.
        num_heads: Query heads of each layer.
        num_kv_heads: Key and value heads of each layer; divides `num_heads`.
        head_dim: Width of one head.
        max_position_embeddings: Longest request that the model was made for, in tokens; see `max_scaled_positions`.
        norm_eps: Added to the mean square before its root (RMSNorm).
        tie_word_embeddings: The head uses the embedding's weight.
        attention_bias: The four attention projections add a bias.
        mlp_bias: The three MLP projections add a bias.
        rope: Rotary settings.
        dtype_name: The dtype that config.json names, as torch spells it, or None.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    norm_eps: float
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    rope: RopeConfig
    dtype_name: str | None

    @property
    def max_scaled_positions(self) -> int:
        """Longest request that the model was made for with its RoPE scaling, in tokens.

        Where the file names a shorter original length, `max_position_embeddings` is the length after scaling, as
        with every published llama3 one. Else it may be the length before it, which the factor stretches.
        """
        if 0 < self.rope.original_max_position_embeddings < self.max_position_embeddings:
            return self.max_position_embeddings
        # Exact, since neither number has a bound in the file.
        return max(self.max_position_embeddings, int(self.max_position_embeddings * Fraction(self.rope.factor)))

    @classmethod
    def from_folder(cls, folder: Path) -> "ModelConfig":
        """Reads config.json of a checkpoint folder.

        Raises:
            CheckpointError: There is no config.json, or it is not a JSON object.
            UnsupportedModelError: It describes a model that is not implemented.
            ConfigError: A value is absent or cannot work.
        """
        return cls.from_raw_config(read_json_object(folder / CONFIG_FILE))

    @classmethod
    def from_raw_config(cls, raw_config: dict[str, Any]) -> "ModelConfig":
        """Reads the contents of config.json; see `from_folder`."""
        _refuse_other_models(raw_config)
        hidden_size = _count(raw_config, "hidden_size")
        num_heads = _count(raw_config, "num_attention_heads")
        num_kv_heads = _count(raw_config, "num_key_value_heads", default=num_heads)
        head_dim = _head_dim(raw_config, hidden_size=hidden_size, num_heads=num_heads)
        if num_heads % num_kv_heads:
            message = (
                f"num_key_value_heads {num_kv_heads} in config.json does not divide num_attention_heads {num_heads}; "
                "each key/value head serves the same number of query heads"
            )
            raise ConfigError(message, num_heads=num_heads, num_kv_heads=num_kv_heads)
        dtype_name = raw_config.get("dtype") or raw_config.get("torch_dtype")
        return cls(
            vocab_size=_count(raw_config, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=_count(raw_config, "intermediate_size"),
            num_layers=_count(raw_config, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            max_position_embeddings=_count(
                raw_config, "max_position_embeddings", default=DEFAULT_MAX_POSITION_EMBEDDINGS
            ),
            norm_eps=_norm_eps(raw_config),
            tie_word_embeddings=_flag(raw_config, "tie_word_embeddings"),
            attention_bias=_flag(raw_config, "attention_bias"),
            mlp_bias=_flag(raw_config, "mlp_bias"),
            rope=RopeConfig.from_raw_config(raw_config),
            dtype_name=_dtype_name(dtype_name),
        )


def _refuse_other_models(raw_config: dict[str, Any]) -> None:
    model_type = raw_config.get("model_type")
    architectures = raw_config.get("architectures") or list(_ARCHITECTURES[:1])
    is_llama = isinstance(architectures, list) and all(name in _ARCHITECTURES for name in architectures)
    if not is_llama or str(model_type).lower() != _MODEL_TYPE:
        message = (
            f"config.json describes model_type {model_type!r} with architectures {architectures!r}; "
            f"only model_type {_MODEL_TYPE!r} with {_ARCHITECTURES[0]} is implemented"
        )
        raise UnsupportedModelError(message, model_type=model_type, architectures=architectures)
    activation = raw_config.get("hidden_act", "silu")
    if activation not in _ACTIVATIONS:
        message = f"hidden_act {activation!r} in config.json is not implemented; only {' or '.join(_ACTIVATIONS)} is"
        raise UnsupportedModelError(message, hidden_act=activation)
    for key, neutral_values in _NEUTRAL_VALUES_BY_KEY.items():
        if raw_config.get(key) not in neutral_values:
            message = f"{key} is {raw_config[key]!r} in config.json and is not implemented; use a checkpoint without it"
            raise UnsupportedModelError(message, key=key, value=raw_config[key])
    if raw_config.get("sliding_window") is not None and raw_config.get("use_sliding_window") is not False:
        window = raw_config["sliding_window"]
        message = (
            f"sliding_window is {window!r} in config.json and is not implemented; use a checkpoint without it, "
            "or one that says use_sliding_window: false"
        )
        raise UnsupportedModelError(message, key="sliding_window", value=window)
    layer_types = raw_config.get("layer_types") or []
    if not isinstance(layer_types, list) or any(layer_type != "full_attention" for layer_type in layer_types):
        message = f"layer_types {layer_types!r} in config.json are not implemented; only full_attention is"
        raise UnsupportedModelError(message, layer_types=layer_types)


def _count(raw_config: dict[str, Any], name: str, default: int | None = None) -> int:
    value = raw_config.get(name)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        message = f"{name} in config.json is {value!r}; it must be a whole number of at least 1"
        raise ConfigError(message, name=name, value=value)
    return value


def _flag(raw_config: dict[str, Any], name: str) -> bool:
    value = raw_config.get(name)
    if value is not None and not isinstance(value, bool):
        message = f"{name} in config.json is {value!r}; it must be true or false"
        raise ConfigError(message, name=name, value=value)
    return bool(value)


def _head_dim(raw_config: dict[str, Any], *, hidden_size: int, num_heads: int) -> int:
    if raw_config.get("head_dim") is None and hidden_size % num_heads:
        message = (
            f"hidden_size {hidden_size} in config.json is no multiple of num_attention_heads {num_heads}; "
            "where heads do not divide the width, config.json must name head_dim"
        )
        raise ConfigError(message, hidden_size=hidden_size, num_heads=num_heads)
    head_dim = _count(raw_config, "head_dim", default=hidden_size // num_heads)
    if head_dim % 2:
        message = f"head_dim {head_dim} of config.json is odd; rotary positions turn dimensions in pairs"
        raise ConfigError(message, head_dim=head_dim)
    return head_dim


def _norm_eps(raw_config: dict[str, Any]) -> float:
    value = raw_config.get("rms_norm_eps", 1e-6)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        message = f"rms_norm_eps in config.json is {value!r}; it must be a number from 0 to below 1"
        raise ConfigError(message, name="rms_norm_eps", value=value)
    return float(value)


def _dtype_name(value: object) -> str | None:
    """Gives torch's name of a dtype that a file may spell otherwise; an unknown one stays as it is."""
    if value is None:
        return None
    name = str(value).lower().removeprefix("torch.")
    return None if name == "auto" else _DTYPE_BY_SPELLING.get(name, name)

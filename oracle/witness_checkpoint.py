"""What the witness reads: config.json and the weights, with NumPy and JSON alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped

StoredWeight = Shaped[np.ndarray, "..."]
"""A weight in its stored dtype, for `to_float64`."""

EMBEDDING_WEIGHT = "model.embed_tokens.weight"
HEAD_WEIGHT = "lm_head.weight"

SETTINGS_BY_ROPE_TYPE = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""The RoPE types that the witness knows, each with what decides its angles besides the base."""

_SINGLE_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"

_NUMPY_DTYPE_BY_CODE = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""NumPy has no bfloat16, so its 16 bits are kept as they are; nothing else here is an integer."""

_LENGTH_BYTES = 8
"""A safetensors file opens with the length of its JSON header, a little-endian 64-bit number."""


@dataclass(frozen=True)
class WitnessConfig:
    """What the witness takes from config.json.

    Attributes:
        num_layers: Number of decoder layers.
        head_dim: Width of one head; the numbers of heads follow from it and the projections' widths.
        norm_eps: Added to the mean square before its root.
        rope: Rotary settings under the newer key names; a type, a base and an original length always.
        tie_word_embeddings: Embedding and head share one weight, unless both are stored.
        attention_bias: The four attention projections add a bias.
        mlp_bias: The three MLP projections add a bias.
    """

    num_layers: int
    head_dim: int
    norm_eps: float
    rope: Mapping[str, Any]
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool

    @classmethod
    def from_raw_config(cls, raw_config: Mapping[str, Any]) -> "WitnessConfig":
        """Reads the contents of config.json, older and newer key names.

        What the file leaves out has the value that transformers' `LlamaConfig` gives it.

        Raises:
            ValueError: It describes a network that the witness's formulas do not.
            KeyError: A width is absent.
        """
        rope = dict(raw_config.get("rope_scaling") or raw_config.get("rope_parameters") or {})
        rope.setdefault("rope_type", rope.get("type", "default"))
        rope.setdefault("rope_theta", raw_config.get("rope_theta", 10000.0))
        rope.setdefault("original_max_position_embeddings", raw_config.get("max_position_embeddings", 2048))
        for key, value, known in (
            ("model_type", raw_config.get("model_type"), ("llama",)),
            ("hidden_act", raw_config.get("hidden_act", "silu"), ("silu", "swish")),
            ("rope_type", rope["rope_type"], tuple(SETTINGS_BY_ROPE_TYPE)),
        ):
            if value not in known:
                message = f"{key} is {value!r}, and the witness knows only {', '.join(known)}"
                raise ValueError(message)
        return cls(
            num_layers=raw_config["num_hidden_layers"],
            head_dim=raw_config.get("head_dim") or raw_config["hidden_size"] // raw_config["num_attention_heads"],
            norm_eps=raw_config.get("rms_norm_eps", 1e-6),
            rope=rope,
            tie_word_embeddings=raw_config.get("tie_word_embeddings", False),
            attention_bias=raw_config.get("attention_bias", False),
            mlp_bias=raw_config.get("mlp_bias", False),
        )


def read_config(folder: Path) -> WitnessConfig:
    """Reads config.json of a checkpoint folder.

    Raises:
        OSError: There is none.
        ValueError: It is not JSON, or describes a network that the witness's formulas do not.
        KeyError: A width is absent.
    """
    return WitnessConfig.from_raw_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))


def read_weights(folder: Path, config: WitnessConfig) -> dict[str, StoredWeight]:
    """Maps every weight of a checkpoint folder by name; nothing is copied into memory.

    Where embedding and head are tied and one of them is stored, it stands under both names.

    Args:
        folder: Holds model.safetensors, or shards with their index.
        config: What config.json of the folder says.

    Raises:
        OSError: A file is absent.
        ValueError: A file is cut short, or is not in the safetensors format.
        KeyError: A weight is stored in a dtype that the witness does not know.
    """
    file_names = [_SINGLE_FILE]
    if (folder / _INDEX_FILE).exists():
        index = json.loads((folder / _INDEX_FILE).read_text(encoding="utf-8"))
        file_names = sorted(set(index["weight_map"].values()))
    weights = {name: weight for file_name in file_names for name, weight in _map_file(folder / file_name).items()}
    stored_ends = {EMBEDDING_WEIGHT, HEAD_WEIGHT} & weights.keys()
    if config.tie_word_embeddings and len(stored_ends) == 1:
        weights |= dict.fromkeys((EMBEDDING_WEIGHT, HEAD_WEIGHT), weights[stored_ends.pop()])
    return weights


def to_float64(stored: Shaped[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Widens a stored weight, or some rows of one; every value is kept exactly."""
    if stored.dtype == np.uint16:
        # A bfloat16 is the upper half of the float32 of the same value.
        bits = stored.astype(np.uint32)
        bits <<= 16
        stored = bits.view(np.float32)
    return stored.astype(np.float64)


def _map_file(path: Path) -> dict[str, StoredWeight]:
    file_bytes = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    data_start = _LENGTH_BYTES + int.from_bytes(file_bytes[:_LENGTH_BYTES].tobytes(), "little")
    header = json.loads(file_bytes[_LENGTH_BYTES:data_start].tobytes())
    header.pop("__metadata__", None)
    weight_by_name = {}
    for name, entry in header.items():
        first, last = (data_start + offset for offset in entry["data_offsets"])
        flat = file_bytes[first:last].view(_NUMPY_DTYPE_BY_CODE[entry["dtype"]])
        weight_by_name[name] = flat.reshape(entry["shape"])
    return weight_by_name

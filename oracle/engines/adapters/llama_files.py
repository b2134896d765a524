"""What does a Llama checkpoint of Hugging Face hold, for engines that want it in a form of their own?"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from oracle.engines.adapter import Refused

Array = np.ndarray[Any, np.dtype[Any]]

_ROPE_TYPES = ("default", "linear", "llama3")


def read_config(folder: Path) -> dict[str, Any]:
    """Reads a configuration, old key names or new ones; `rope` holds the settings of RoPE.

    Raises:
        Refused: It is of another family, or has a RoPE that is not known here.
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "llama":
        message = f"only checkpoints of the Llama family can be opened here, and not {config.get('model_type')!r}"
        raise Refused(message)
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    rope["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    if rope["rope_type"] not in _ROPE_TYPES:
        message = f"RoPE of type {rope['rope_type']!r} is none of {', '.join(_ROPE_TYPES)}"
        raise Refused(message)
    config["rope"] = rope
    config["head_dim"] = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    config["num_key_value_heads"] = config.get("num_key_value_heads") or config["num_attention_heads"]
    return config


def read_eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Reads which tokens end a request: those of the generation settings, else of the configuration."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.exists() else None
        if found is not None:
            return tuple(found) if isinstance(found, list) else (found,)
    return ()


def read_weights(folder: Path) -> dict[str, Array]:
    """Reads every weight of a checkpoint, however many files hold them."""
    weight_by_name: dict[str, Array] = {}
    for path in sorted(folder.glob("*.safetensors")):
        weight_by_name |= load_file(path)
    return weight_by_name


def llama3_factors(config: dict[str, Any]) -> Array | None:
    """Gives what each wavelength is divided by under RoPE of type "llama3"; nothing under another.

    Raises:
        Refused: RoPE is of a type that nothing is written for, neither here nor by those who ask.
    """
    rope = config["rope"]
    if rope["rope_type"] in ("default", "linear"):
        return None
    if rope["rope_type"] != "llama3":
        message = f"RoPE of type {rope['rope_type']!r} has no formula here; default, linear and llama3 have one"
        raise Refused(message)
    length = rope.get("original_max_position_embeddings") or config["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    factors = []
    for place in range(0, config["head_dim"], 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (place / config["head_dim"])
        smooth = min(max((length / wavelength - low) / (high - low), 0.0), 1.0)
        factors.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return np.array(factors, dtype=np.float32)


def inverse_frequencies(config: dict[str, Any]) -> Array:
    """Gives by how much each pair of a head turns from one place to the next, whatever the type of RoPE.

    Raises:
        Refused: There is no formula for it.
    """
    rope = config["rope"]
    places = np.arange(0, config["head_dim"], 2, dtype=np.float64) / config["head_dim"]
    frequencies: Array = 1.0 / rope["rope_theta"] ** places
    factors = llama3_factors(config)
    if rope["rope_type"] == "linear":
        frequencies /= rope["factor"]
    if factors is not None:
        frequencies /= factors
    return frequencies

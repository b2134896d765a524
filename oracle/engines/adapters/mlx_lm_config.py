"""By which names do published checkpoints write what transformers 5 writes by others? mlx-lm reads mostly theirs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_OLD_LAYER_TYPES = {"linear_attention": "mamba", "full_attention": "attention"}
"""Of hybrid families of Granite."""


def published_names(folder: Path) -> dict[str, Any]:
    """Gives what is to stand in a folder's configuration besides, for it to be as published ones of its family are.

    Nothing for a folder without a configuration, of which mlx-lm says so itself.

    Raises:
        ValueError: The configuration is no JSON.
    """
    path = folder / "config.json"
    return _published(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _published(config: Mapping[str, Any]) -> dict[str, Any]:
    names = _of_rotation(config.get("rope_parameters") or {})
    family, layer_types = config.get("model_type"), config.get("layer_types") or []
    if "sliding_attention" in layer_types and "full_attention" in layer_types:
        names["sliding_window_pattern"] = len(layer_types) // layer_types.count("full_attention")
    if family == "gpt2":
        names["n_ctx"] = config["n_positions"]
    if family == "gpt_neox" and "rope_theta" in names:
        names |= {"rotary_emb_base": names["rope_theta"], "rotary_pct": names.get("partial_rotary_factor", 1.0)}
    if family == "qwen3_moe" and "num_local_experts" in config:
        names["num_experts"] = config["num_local_experts"]
    if family == "granitemoehybrid":
        names["layer_types"] = [_OLD_LAYER_TYPES.get(name, name) for name in layer_types]
    return names


def _of_rotation(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Gives settings of rotary angles as they stood before `rope_parameters`; those of Gemma 3 differ by layer."""
    if "full_attention" in rope and "sliding_attention" in rope:
        local = {"rope_local_base_freq": rope["sliding_attention"]["rope_theta"]}
        return _of_rotation(rope["full_attention"]) | local
    top = {name: rope[name] for name in ("rope_theta", "partial_rotary_factor") if name in rope}
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return top
    scaling = {name: value for name, value in rope.items() if name not in top}
    return {**top, "rope_scaling": {**scaling, "type": kind}}

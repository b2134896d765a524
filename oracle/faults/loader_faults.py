"""Faults of the loader: what is read, what is ignored, what is left as it was."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oracle.faults.registry import Area, one_replacement
from refinfer.config import rope_config
from refinfer.model import checkpoint
from refinfer.model.llama import Llama
from refinfer.model.safetensors_file import SafetensorsFile, StoredWeight

_merged_settings = rope_config._merged_settings  # noqa: SLF001
_check_names_and_shapes = checkpoint._check_names_and_shapes  # noqa: SLF001
_read = StoredWeight.read
_open = SafetensorsFile.open.__func__  # type: ignore[attr-defined]  # a class method's function


@one_replacement(
    "rope_theta_default",
    Area.LOADER,
    "rope_theta is read under a wrong name, so the default stands",
    rope_config,
    "_merged_settings",
    models=("Lightning-AI/litgpt#2217 (1.05)",),
    component=("config/rope_config.py",),
    needs=("rope scaling",),
    seen_by=("reference logits", "loader"),
)
def rope_theta_default(raw_config: dict[str, Any]) -> dict[str, Any]:
    """Reads everything but the base."""
    return {**_merged_settings(raw_config), "rope_theta": rope_config.DEFAULT_ROPE_THETA}


@one_replacement(
    "legacy_rope_scaling_missed",
    Area.LOADER,
    "scaling is looked for under the newer key only, and its absence means none",
    rope_config,
    "_merged_settings",
    models=("lablup/mlxcel#1355 (1.06)",),
    component=("config/rope_config.py",),
    needs=("rope scaling",),
    seen_by=("reference logits", "loader"),
)
def legacy_rope_scaling_missed(raw_config: dict[str, Any]) -> dict[str, Any]:
    """Does not know the older key."""
    known = {key: value for key, value in raw_config.items() if key != "rope_scaling"}
    return _merged_settings(known)


@one_replacement(
    "tie_flag_ignored",
    Area.LOADER,
    "the head always uses the embedding's weight",
    checkpoint,
    "_tie_after_reading",
    models=("deepspeedai/DeepSpeed#4088 (1.03)",),
    component=("model/checkpoint.py",),
    needs=("untied head",),
    seen_by=("reference logits", "greedy", "loader"),
)
def tie_flag_ignored(model: Llama) -> None:
    """Ties whatever config.json says."""
    model.lm_head.weight = model.embedding_weight


@one_replacement(
    "biases_left_zero",
    Area.LOADER,
    "projection biases keep their initial zeros",
    StoredWeight,
    "read",
    models=None,
    component=("model/checkpoint.py", "model/safetensors_file.py"),
    needs=("attention bias",),
    seen_by=("reference logits", "greedy", "loader"),
)
def biases_left_zero(self: StoredWeight) -> Tensor:
    """Reads weights only."""
    weight = _read(self)
    return torch.zeros_like(weight) if self.name.endswith(".bias") else weight


class _Zeros(StoredWeight):
    """A weight that is nowhere."""

    def read(self) -> Tensor:
        """Gives zeros."""
        return torch.zeros(self.shape)


@one_replacement(
    "missing_weights_left_zero",
    Area.LOADER,
    "weights that no file holds are left as they are, without a word",
    checkpoint,
    "_check_names_and_shapes",
    models=("vllm-project/vllm#34859 (1.11)",),
    component=("model/checkpoint.py",),
    needs=(),
    seen_by=("loader",),
)
def missing_weights_left_zero(model: Llama, weight_by_name: dict[str, StoredWeight]) -> None:
    """Fills the gaps."""
    for name, parameter in model.named_parameters():
        zeros = _Zeros(name, Path("nowhere"), "F32", tuple(parameter.shape), offset=0, num_bytes=0)
        weight_by_name.setdefault(name, zeros)


@one_replacement(
    "truncated_shard_accepted",
    Area.LOADER,
    "a file shorter than its header says is read, with zeros at its end",
    SafetensorsFile,
    "open",
    models=("osaurus-ai/vmlx-swift#217 (1.10)",),
    component=("model/safetensors_file.py",),
    needs=(),
    seen_by=("loader",),
)
def truncated_shard_accepted(path: Path) -> SafetensorsFile:
    """Fills the file up before anybody looks."""
    content = path.read_bytes()
    header_length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + header_length])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    missing = 8 + header_length + max(ends) - len(content)
    if missing > 0:
        path.write_bytes(content + bytes(missing))
    return _open(SafetensorsFile, path)  # type: ignore[no-any-return]  # as above


FAULTS = (
    rope_theta_default,
    legacy_rope_scaling_missed,
    tie_flag_ignored,
    biases_left_zero,
    missing_weights_left_zero,
    truncated_shard_accepted,
)

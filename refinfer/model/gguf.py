"""Turns a GGUF file of a Llama model into a checkpoint folder in float32."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from refinfer.config.generation_config import GENERATION_CONFIG_FILE
from refinfer.config.model_config import CONFIG_FILE, ModelConfig
from refinfer.errors import (
    CheckpointError,
    MissingWeightError,
    UnexpectedWeightError,
    UnsupportedModelError,
    WeightShapeError,
)
from refinfer.model.gguf_config import Metadata, raw_config, raw_generation_config
from refinfer.tokenizer import Tokenizer

WEIGHTS_FILE = "model.safetensors"

_NAME_BY_GGUF_NAME = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

_LAYER_NAME_BY_GGUF_NAME = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

ProgressReport = Callable[[int, int], None]
"""Is told how many weights are done, and how many there are."""


def convert_gguf(path: Path, folder: Path, report: ProgressReport | None = None) -> None:
    """Writes config.json, generation_config.json, weights and tokenizer of a GGUF file into a folder.

    Quantised weights are multiplied out to float32, so the result needs no support for quantisation.
    The folder must exist; files of these names in it are replaced.

    Args:
        path: The GGUF file.
        folder: Where the checkpoint is written.
        report: Is called after each weight.

    Raises:
        UnsupportedModelError: The file holds a model or a kind of quantisation that is not implemented.
        CheckpointError: The file cannot be read, or what it holds is not a whole model.
    """
    reader = _open(path)
    metadata = Metadata({key: field.contents() for key, field in reader.fields.items()}, path.name)
    contents = raw_config(metadata, weight_names={tensor.name for tensor in reader.tensors})
    config = ModelConfig.from_raw_config(contents)
    weight_by_name: dict[str, npt.NDArray[np.float32]] = {}
    for tensor in reader.tensors:
        name = checkpoint_name(tensor.name)
        weight_by_name[name] = _rotary_halves(name, _dequantised(tensor, path), config)
        if report is not None:
            report(len(weight_by_name), len(reader.tensors))
    if "model.embed_tokens.weight" not in weight_by_name:
        message = f"{path.name} has no token_embd.weight; the file is incomplete, so take another copy of it"
        raise MissingWeightError(message, path=path)
    # transformers refuses files that do not say for which framework they were written.
    save_file(weight_by_name, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    _write_json(folder / CONFIG_FILE, contents)
    _write_json(folder / GENERATION_CONFIG_FILE, raw_generation_config(metadata))
    if metadata.get("tokenizer.ggml.model") is not None:
        Tokenizer.from_gguf(path).save(folder)


def checkpoint_name(gguf_name: str) -> str:
    """Gives the checkpoint's name of a weight, such as "model.layers.3.self_attn.q_proj.weight".

    Raises:
        UnexpectedWeightError: A Llama model has no such weight.
    """
    stem, _, kind = gguf_name.rpartition(".")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    name = _NAME_BY_GGUF_NAME.get(stem)
    if layer and layer[2] in _LAYER_NAME_BY_GGUF_NAME:
        name = f"model.layers.{layer[1]}.{_LAYER_NAME_BY_GGUF_NAME[layer[2]]}"
    if name is None or kind not in ("weight", "bias"):
        message = f"the file holds a weight {gguf_name}, which a Llama model does not have"
        raise UnexpectedWeightError(message, name=gguf_name)
    return f"{name}.{kind}"


def _open(path: Path) -> gguf.GGUFReader:
    try:
        return gguf.GGUFReader(path)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, OSError) as error:
        message = f"{path} cannot be read as a GGUF file: {error}; copy or download it again"
        raise CheckpointError(message, path=path) from error


def _dequantised(tensor: gguf.ReaderTensor, path: Path) -> npt.NDArray[np.float32]:
    try:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        message = f"{path.name} holds {tensor.name} as {tensor.tensor_type.name}, which the gguf package cannot read"
        raise UnsupportedModelError(message, name=tensor.name, kind=tensor.tensor_type.name) from error
    return np.ascontiguousarray(weight, dtype=np.float32)


def _rotary_halves(name: str, weight: npt.NDArray[np.float32], config: ModelConfig) -> npt.NDArray[np.float32]:
    """Puts the rows of queries and keys back into the order of checkpoints.

    A rotary pair is two neighbouring rows of a head in GGUF files, and rows i and i + head_dim/2 in checkpoints.
    """
    if ".self_attn.q_proj." in name:
        num_heads = config.num_heads
    elif ".self_attn.k_proj." in name:
        num_heads = config.num_kv_heads
    else:
        return weight
    if len(weight) != num_heads * config.head_dim:
        message = f"{name} has {len(weight)} rows, but {num_heads} heads of width {config.head_dim} have another number"
        raise WeightShapeError(message, name=name, num_rows=len(weight), num_heads=num_heads)
    pairs = weight.reshape(num_heads, config.head_dim // 2, 2, -1)  # heads, pairs, 2, columns
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _write_json(path: Path, contents: dict[str, Any]) -> None:
    path.write_text(json.dumps(contents, indent=2, sort_keys=True) + "\n", encoding="utf-8")

"""Tiny checkpoints as plain tensors, for tests to break one thing of."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.utils import logging

from refinfer import load_model

RAW_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 23,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}


def weight_shapes(raw_config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The weights that a checkpoint of this configuration holds, written out once more for the tests."""
    hidden, inner, vocab = (raw_config[key] for key in ("hidden_size", "intermediate_size", "vocab_size"))
    heads = raw_config["num_attention_heads"] * raw_config["head_dim"]
    kv = raw_config["num_key_value_heads"] * raw_config["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not raw_config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    projections = {
        "self_attn": {
            "q_proj": (heads, hidden),
            "k_proj": (kv, hidden),
            "v_proj": (kv, hidden),
            "o_proj": (hidden, heads),
        },
        "mlp": {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)},
    }
    for layer in range(raw_config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes[f"{prefix}.input_layernorm.weight"] = shapes[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
        for part, has_bias in (("self_attn", "attention_bias"), ("mlp", "mlp_bias")):
            for name, shape in projections[part].items():
                shapes[f"{prefix}.{part}.{name}.weight"] = shape
                if raw_config.get(has_bias):
                    shapes[f"{prefix}.{part}.{name}.bias"] = shape[:1]
    return shapes


def drawn_weights(raw_config: dict[str, Any], seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Weights large enough that attention and order of tokens show in every logit."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (torch.randn(shape, generator=generator) * 0.4 + name.endswith("norm.weight")).to(dtype)
        for name, shape in weight_shapes(raw_config).items()
    }


def write_checkpoint(folder: Path, raw_config: dict[str, Any], weights: dict[str, Tensor], num_shards: int = 1) -> Path:
    """Writes a checkpoint folder as it is given, good or bad."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw_config))
    if num_shards == 1:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        return folder
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = {name: weight for index, (name, weight) in enumerate(weights.items()) if index % num_shards == shard}
        save_file(part, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def open_reference(folder: Path, dtype: str = "float32") -> LlamaForCausalLM:
    """The reference's model of a folder."""
    reference: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    for parameter in reference.parameters():
        parameter.data = parameter.data.clone()  # as `oracle.reference.Reference.open` does
    return reference


def reference_logits(reference: LlamaForCausalLM, token_ids: Tensor) -> Tensor:
    """Logits of every token of one request, in one pass without a cache."""
    with torch.no_grad():
        logits: Tensor = reference(
            token_ids[None], attention_mask=torch.ones_like(token_ids)[None], use_cache=False
        ).logits[0]
    return logits


@pytest.fixture(scope="session", autouse=True)
def _no_progress_bars():
    logging.disable_progress_bar()


@pytest.fixture(scope="session")
def tiny():
    """What tests of the model and its loader share."""
    return SimpleNamespace(
        raw_config=RAW_CONFIG,
        weight_shapes=weight_shapes,
        drawn_weights=drawn_weights,
        write_checkpoint=write_checkpoint,
        open_reference=open_reference,
        reference_logits=reference_logits,
    )


@pytest.fixture
def folder(tmp_path) -> Path:
    """A good checkpoint folder."""
    return write_checkpoint(tmp_path / "checkpoint", RAW_CONFIG, drawn_weights(RAW_CONFIG))


@pytest.fixture(scope="session")
def model_by_dtype(tmp_path_factory):
    """The good checkpoint as a model, by the dtype it runs in; tests change nothing of it."""
    folder = write_checkpoint(tmp_path_factory.mktemp("model"), RAW_CONFIG, drawn_weights(RAW_CONFIG))
    return {dtype: load_model(folder, dtype=dtype) for dtype in ("float32", "float64", "bfloat16", "float16")}

"""Tiny Llama checkpoints made by transformers itself, so that nothing of ours stands between them and a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SETTINGS: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,  # attention is peaked, so that what goes wrong in it shows
    "rms_norm_eps": 1e-5,
}


@pytest.fixture(scope="session")
def save_llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Gives a function that writes a checkpoint with some settings changed, the same weights each time."""

    def save(*, dtype: torch.dtype = torch.float32, max_shard_size: str = "1GB", **settings: Any) -> Path:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model: Any = LlamaForCausalLM(LlamaConfig(**(SETTINGS | settings)))
            for name, parameter in model.named_parameters():
                if "norm" in name or name.endswith("bias"):  # ones and zeros, as transformers makes them
                    parameter.data += 0.2 * torch.randn(parameter.shape)
        folder = tmp_path_factory.mktemp("llama")
        model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
        return folder

    return save


@pytest.fixture(scope="session")
def llama_folder(save_llama: Callable[..., Path]) -> Path:
    """One checkpoint for tests that need nothing special of it."""
    return save_llama()

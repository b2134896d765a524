"""The contents of a config.json that loads, for tests to change a key of, and those of published models."""

import json
from pathlib import Path
from typing import Any

import pytest

PUBLISHED = {
    repository: entry["config"]
    for repository, entry in json.loads(Path(__file__).with_name("published_llama_configs.json").read_text()).items()
    if "refused" not in entry
}
"""Shapes of published models that load, by repository, as their files have them."""

REFUSED_BY_REFERENCE = {"binwon/kanana-cot"}
"""Their heads do not divide the width; the reference refuses to read such a file."""


@pytest.fixture(params=[repository for repository in PUBLISHED if repository not in REFUSED_BY_REFERENCE])
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

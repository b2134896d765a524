"""What the witness reads equals what transformers and safetensors read."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from oracle.errors import ReferenceUnavailable
from oracle.reference import Reference
from oracle.witness import Witness
from oracle.witness_checkpoint import SETTINGS_BY_ROPE_TYPE, WitnessConfig, to_float64
from refinfer.config.rope_config import _NUMBERS_BY_ROPE_TYPE

SHORTEST_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
}
LLAMA3_NUMBERS = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_config_has_the_defaults_of_transformers():
    config = WitnessConfig.from_raw_config(SHORTEST_CONFIG)
    expected: Any = LlamaConfig(**SHORTEST_CONFIG)
    assert config == WitnessConfig(
        num_layers=2,
        head_dim=expected.head_dim,
        norm_eps=expected.rms_norm_eps,
        rope=expected.rope_parameters | {"original_max_position_embeddings": expected.max_position_embeddings},
        tie_word_embeddings=expected.tie_word_embeddings,
        attention_bias=expected.attention_bias,
        mlp_bias=expected.mlp_bias,
    )


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, **LLAMA3_NUMBERS}},
        {"rope_theta": 500.0, "rope_parameters": {"rope_type": "llama3", **LLAMA3_NUMBERS}},
        {"rope_theta": 500.0, "rope_parameters": None, "rope_scaling": {"rope_type": "llama3", **LLAMA3_NUMBERS}},
        {"rope_theta": 500.0, "rope_parameters": None, "rope_scaling": {"type": "llama3", **LLAMA3_NUMBERS}},
        {"rope_theta": 500.0, "rope_parameters": None, "rope_scaling": None},
        {"rope_parameters": None},
    ],
    ids=["newer", "newer, base outside", "older", "older, type", "older, none", "nothing"],
)
def test_rope_settings_mean_what_they_mean_to_transformers(save_llama, rope):
    folder = save_llama()
    change_config(folder, **rope)
    token_ids = list(range(50))
    difference = Witness.open(folder).logits(token_ids) - Reference.open(folder).logits(token_ids).numpy()
    assert np.abs(difference).max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_weights_keep_every_value_exactly(save_llama, dtype):
    folder = save_llama(dtype=dtype)
    stored = load_file(folder / "model.safetensors")
    weights = Witness.open(folder).weights
    assert weights.keys() == stored.keys()
    for name, weight in stored.items():
        assert weight.dtype == dtype
        assert np.array_equal(to_float64(weights[name]), weight.to(torch.float64).numpy())


def test_bfloat16_keeps_signs_infinities_and_the_smallest_values():
    values = torch.tensor([-0.0, -1.5, 3e38, 1e-40, float("inf"), -float("inf")], dtype=torch.bfloat16)
    widened = to_float64(values.view(torch.uint16).numpy())
    expected = values.to(torch.float64).numpy()
    assert widened.tobytes() == expected.tobytes()


def test_shards_hold_what_a_single_file_holds(save_llama):
    single, sharded = Witness.open(save_llama()), Witness.open(save_llama(max_shard_size="40KB"))
    assert single.weights.keys() == sharded.weights.keys()
    assert all(np.array_equal(weight, sharded.weights[name]) for name, weight in single.weights.items())


@pytest.mark.parametrize("kept", ["model.embed_tokens.weight", "lm_head.weight"])
def test_tied_ends_share_whichever_weight_is_stored(save_llama, kept):
    folder = save_llama(tie_word_embeddings=True)
    path = folder / "model.safetensors"
    weights = load_file(path)
    embedding = weights.pop("model.embed_tokens.weight")
    save_file(weights | {kept: embedding}, path)
    token_ids = list(range(20))
    difference = Witness.open(folder).logits(token_ids) - Reference.open(folder).logits(token_ids).numpy()
    assert np.abs(difference).max() < 1e-4


def test_tied_config_with_two_different_weights_keeps_both(save_llama):
    """As transformers does: values that differ are two weights, whatever config.json says."""
    folder = save_llama()
    change_config(folder, tie_word_embeddings=True)
    token_ids = list(range(20))
    difference = Witness.open(folder).logits(token_ids) - Reference.open(folder).logits(token_ids).numpy()
    assert np.abs(difference).max() < 1e-4


def test_witness_knows_every_rope_type_that_the_engine_runs_with_the_same_numbers():
    assert SETTINGS_BY_ROPE_TYPE == _NUMBERS_BY_ROPE_TYPE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mistral"}, "model_type is 'mistral'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope_type is 'yarn'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
    ],
    ids=["architecture", "activation", "rope type", "rope type, older key"],
)
def test_witness_refuses_a_model_its_formulas_do_not_describe(save_llama, changes, message):
    folder = save_llama()
    change_config(folder, **changes)
    with pytest.raises(ReferenceUnavailable, match=message):
        Witness.open(folder)


def test_witness_refuses_a_file_cut_short(save_llama):
    path = save_llama() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ReferenceUnavailable, match="the witness cannot read"):
        Witness.open(path.parent)


def test_witness_refuses_a_quantised_weight(save_llama):
    path = save_llama() / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {"model.norm.weight": torch.ones(48, dtype=torch.int8)}, path)
    with pytest.raises(ReferenceUnavailable, match="I8"):
        Witness.open(path.parent)

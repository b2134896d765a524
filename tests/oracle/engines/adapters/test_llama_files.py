"""A checkpoint of Hugging Face is read as it stands, in the older words and the newer ones."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_files import (
    inverse_frequencies,
    llama3_factors,
    read_config,
    read_eos_token_ids,
    read_weights,
)

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


@pytest.fixture
def config_of(tmp_path):
    """Gives a function that writes a configuration with some fields and reads it."""

    def read(**fields):
        (tmp_path / "config.json").write_text(json.dumps(CONFIG | fields))
        return read_config(tmp_path)

    return read


def test_config_fills_what_is_left_out(config_of):
    config = config_of()
    assert (config["head_dim"], config["num_key_value_heads"]) == (8, 4)
    assert config["rope"] == {"rope_type": "default", "rope_theta": 10000.0}


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
    ],
    ids=["older", "newer"],
)
def test_config_reads_rope_in_both_words(config_of, fields):
    rope = config_of(**fields)["rope"]
    assert (rope["rope_type"], rope["rope_theta"], rope["factor"]) == ("linear", 500.0, 2.0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model_type": "gemma"}, "and not 'gemma'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "'yarn' is none of default, linear, llama3"),
    ],
)
def test_config_refuses_what_it_does_not_know(config_of, fields, words):
    with pytest.raises(Refused, match=words):
        config_of(**fields)


@pytest.mark.parametrize("rope", [{"rope_type": "default", "rope_theta": 700.0}, LLAMA3], ids=["default", "llama3"])
def test_inverse_frequencies_are_those_of_the_reference(config_of, rope):
    config = config_of(rope_parameters=rope, head_dim=32)
    reference = LlamaConfig(**{key: value for key, value in (CONFIG | {"head_dim": 32}).items() if key != "model_type"})
    reference.rope_parameters = rope
    if rope is LLAMA3:
        due, _ = ROPE_INIT_FUNCTIONS["llama3"](reference, torch.device("cpu"))
        expected = due.numpy()
    else:
        expected = 700.0 ** -(np.arange(0, 32, 2) / 32)
    np.testing.assert_allclose(inverse_frequencies(config), expected, rtol=1e-6)


def test_inverse_frequencies_of_linear_scaling_are_divided(config_of):
    plain = inverse_frequencies(config_of())
    linear = inverse_frequencies(config_of(rope_parameters={"rope_type": "linear", "factor": 4.0}))
    np.testing.assert_allclose(linear * 4.0, plain)


@pytest.mark.parametrize("ask", [llama3_factors, inverse_frequencies])
def test_frequencies_refuse_a_type_without_a_formula(config_of, ask):
    config = config_of()
    config["rope"]["rope_type"] = "yarn"
    with pytest.raises(Refused, match="RoPE of type 'yarn' has no formula here"):
        ask(config)


def test_llama3_factors_touch_long_waves_only(config_of):
    factors = llama3_factors(config_of(rope_parameters=LLAMA3, head_dim=32))
    assert factors is not None
    assert (factors[0], factors[-1]) == (1.0, 8.0)
    assert np.all(np.diff(factors) >= 0)
    assert llama3_factors(config_of()) is None


@pytest.mark.parametrize(
    ("config", "generation", "due"),
    [({"eos_token_id": 3}, None, (3,)), ({"eos_token_id": 3}, {"eos_token_id": [3, 5]}, (3, 5)), ({}, {}, ())],
)
def test_eos_token_ids_are_those_of_the_generation_settings_first(tmp_path, config, generation, due):
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_eos_token_ids(tmp_path) == due


def test_weights_come_from_every_shard(tmp_path):
    whole = read_weights(write_checkpoint(CheckpointSpec(), tmp_path / "whole"))
    sharded = read_weights(write_checkpoint(CheckpointSpec(num_shards=3), tmp_path / "sharded"))
    assert whole.keys() == sharded.keys()
    assert all(np.array_equal(weight, sharded[name]) for name, weight in whole.items())

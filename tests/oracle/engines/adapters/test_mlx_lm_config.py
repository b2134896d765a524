import json

import pytest

from oracle.engines.adapters.mlx_lm_config import published_names
from oracle.families import FamilySpec


@pytest.fixture
def names_of(tmp_path):
    def names_of(config):
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return published_names(tmp_path)

    return names_of


def of_shape(shape):
    return json.loads(FamilySpec.with_head(shape, 16).config().to_json_string(use_diff=False))


def test_base_of_rotary_angles_stands_at_the_top(names_of):
    assert names_of(of_shape("llama:other-rope-base")) == {"rope_theta": 500.0}
    assert names_of(of_shape("gpt2")) == {"n_ctx": 512}


def test_share_of_a_head_that_is_rotated_stands_at_the_top(names_of):
    assert names_of(of_shape("glm"))["partial_rotary_factor"] == 0.5
    assert names_of(of_shape("gpt_neox")) == {
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "rotary_emb_base": 10000.0,
        "rotary_pct": 0.25,
    }


def test_scaling_of_rotary_angles_has_both_names_of_its_kind(names_of):
    names = names_of(of_shape("llama:yarn-rope"))
    assert names["rope_theta"] == 10000.0
    assert names["rope_scaling"] == {
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "rope_type": "yarn",
        "type": "yarn",
    }


@pytest.mark.parametrize("shape", ["gemma3_text", "gemma3_text:other-way-round"])
def test_layers_that_differ_have_a_pattern_and_two_bases(names_of, shape):
    assert names_of(of_shape(shape)) == {
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "sliding_window_pattern": 2,
    }


def test_layers_that_do_not_differ_have_no_pattern(names_of):
    assert "sliding_window_pattern" not in names_of(of_shape("smollm3"))


def test_experts_and_layers_have_their_old_names(names_of):
    assert names_of(of_shape("qwen3_moe"))["num_experts"] == 4
    config = {"model_type": "granitemoehybrid", "layer_types": ["linear_attention", "full_attention"]}
    assert names_of(config) == {"layer_types": ["mamba", "attention"]}


def test_what_a_configuration_does_not_name_is_not_made_up(names_of):
    assert names_of({"model_type": "mamba"}) == {}


def test_a_folder_without_a_configuration_has_no_names(tmp_path):
    assert published_names(tmp_path) == {}

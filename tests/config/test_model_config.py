"""The shape of a model: defaults as the reference has them, and refusals by name."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, LlamaConfig

from refinfer.config import ModelConfig, RopeConfig
from refinfer.errors import CheckpointError, ConfigError, RefinferError, UnsupportedModelError

REQUIRED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

OPTIONAL: dict[str, list[Any]] = {
    "num_key_value_heads": [1, 2, 4, None],
    "head_dim": [6, 8, 10, None],
    "max_position_embeddings": [1, 64, 2048],
    "rms_norm_eps": [1e-5, 1e-6, 0.5, 0.0],
    "tie_word_embeddings": [True, False],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "hidden_act": ["silu", "swish"],
    "rope_theta": [10000.0, 500000],
    "sliding_window": [None],
    "use_sliding_window": [None, False],
    "quantization_config": [None, {}],
    "pretraining_tp": [1],
}
SAME_NAME = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "head_dim",
    "max_position_embeddings",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
)


def matches_reference(ours, reference):
    """Whether both configurations describe the same network."""
    theirs: dict[str, Any] = reference.to_dict()
    rope: dict[str, Any] = {
        name: value if name == "rope_type" else float(value)
        for name, value in theirs["rope_parameters"].items()
        if name in RopeConfig.__dataclass_fields__
    }
    return ours == ModelConfig(
        **{name: theirs[name] for name in SAME_NAME},
        num_layers=theirs["num_hidden_layers"],
        num_heads=theirs["num_attention_heads"],
        num_kv_heads=theirs["num_key_value_heads"],
        norm_eps=float(theirs["rms_norm_eps"]),
        rope=RopeConfig(**rope),
        dtype_name=theirs["dtype"],
    )


@settings(deadline=None)
@given(changes=st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in OPTIONAL.items()}))
def test_model_config_takes_the_defaults_of_the_reference(changes):
    raw_config = {
        "model_type": "llama",
        "vocab_size": 97,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    } | changes
    assert matches_reference(ModelConfig.from_raw_config(dict(raw_config)), LlamaConfig.from_dict(dict(raw_config)))


def test_model_config_matches_reference_on_published_shapes(published_config):
    reference = LlamaConfig.from_dict(dict(published_config))
    assert matches_reference(ModelConfig.from_raw_config(published_config), reference)


def test_model_config_reads_what_the_reference_saves_of_a_published_file(tmp_path, published_config):
    """The newer keys: `rope_parameters` and `dtype`, whatever the file had before."""
    LlamaConfig.from_dict(dict(published_config)).save_pretrained(tmp_path)
    assert ModelConfig.from_folder(tmp_path) == ModelConfig.from_raw_config(published_config)


def test_model_config_reads_what_the_reference_saves(tmp_path, raw_config):
    LlamaConfig.from_dict(raw_config | {"dtype": "bfloat16"}).save_pretrained(tmp_path)
    assert matches_reference(ModelConfig.from_folder(tmp_path), AutoConfig.from_pretrained(tmp_path))


def test_model_config_refuses_a_folder_without_config(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"does not exist; a checkpoint folder needs config.json, so give"
    ) as caught:
        ModelConfig.from_folder(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "mistral"},
        {"model_type": None},
        {"architectures": ["MistralForCausalLM"]},
        {"architectures": ["LlamaForSequenceClassification"]},
        {"architectures": ["LlamaForCausalLM", "LlamaModel"]},
        {"architectures": ["LlamaModel"]},
        {"architectures": ["llamaforcausallm"]},
        {"architectures": [["LlamaForCausalLM"]]},
        {"architectures": "LlamaForCausalLM"},
        {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    ],
    ids=str,
)
def test_model_config_refuses_an_unknown_architecture(raw_config, changes):
    with pytest.raises(UnsupportedModelError, match="only model_type 'llama' with LlamaForCausalLM") as caught:
        ModelConfig.from_raw_config(raw_config | changes)
    assert "config.json" in str(caught.value)
    for value in changes.values():
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("architectures", [None, [], ["LlamaForCausalLM"], ["LLaMAForCausalLM"]], ids=str)
@pytest.mark.parametrize("model_type", ["llama", "LLaMA"])
def test_model_config_takes_the_llama_architecture(raw_config, architectures, model_type):
    """The second spelling is that of the first converted files, and some publishers keep it."""
    found = ModelConfig.from_raw_config(raw_config | {"architectures": architectures, "model_type": model_type})
    assert found == ModelConfig.from_raw_config(raw_config)


@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new", "SiLU", "", None], ids=str)
def test_model_config_refuses_an_activation_that_is_not_silu(raw_config, activation):
    with pytest.raises(UnsupportedModelError, match=r"config.json.*only silu or swish") as caught:
        ModelConfig.from_raw_config(raw_config | {"hidden_act": activation})
    assert repr(activation) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "neutral"),
    [
        ("sliding_window", 4096, None),
        ("use_sliding_window", True, False),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}, None),
        ("attn_logit_softcapping", 50.0, None),
        ("final_logit_softcapping", 30.0, None),
        ("use_qk_norm", True, False),
        ("num_local_experts", 8, 1),
        ("is_encoder_decoder", True, False),
        ("layer_types", ["full_attention", "sliding_attention"], ["full_attention", "full_attention"]),
        ("layer_types", "full_attention", []),
        ("layer_types", [{"full_attention": 1}], ["full_attention"]),
        ("layer_types", 5, None),
    ],
)
def test_model_config_refuses_a_feature_that_is_not_implemented(raw_config, key, value, neutral):
    with pytest.raises(UnsupportedModelError, match=f"{key}.*config.json.*not implemented") as caught:
        ModelConfig.from_raw_config(raw_config | {key: value})
    assert repr(value) in str(caught.value)
    expected = ModelConfig.from_raw_config(raw_config)
    assert ModelConfig.from_raw_config(raw_config | {key: neutral}) == expected


def test_model_config_takes_a_sliding_window_that_is_switched_off(raw_config):
    """As files have it that were made from Qwen2's."""
    window = {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28}
    assert ModelConfig.from_raw_config(raw_config | window) == ModelConfig.from_raw_config(raw_config)


@pytest.mark.parametrize("flag", [None, True, 0, "false"], ids=repr)
def test_model_config_refuses_a_sliding_window_that_is_not_switched_off(raw_config, flag):
    with pytest.raises(UnsupportedModelError, match=r"sliding_window"):
        ModelConfig.from_raw_config(raw_config | {"sliding_window": 4096, "use_sliding_window": flag})


@pytest.mark.parametrize("name", REQUIRED)
def test_model_config_refuses_a_shape_without_one_of_its_widths(raw_config, name):
    del raw_config[name]
    with pytest.raises(ConfigError, match=f"{name} in config.json is None; it must be a whole number of at least 1"):
        ModelConfig.from_raw_config(raw_config)


@pytest.mark.parametrize("value", [0, -4, 2.0, "4", True, [4]], ids=repr)
@pytest.mark.parametrize("name", [*REQUIRED, "num_key_value_heads", "head_dim", "max_position_embeddings"])
def test_model_config_refuses_a_width_that_is_no_count(raw_config, name, value):
    with pytest.raises(ConfigError, match=f"{name} in config.json is .* whole number of at least 1") as caught:
        ModelConfig.from_raw_config(raw_config | {name: value})
    assert repr(value) in str(caught.value)


def test_model_config_refuses_key_value_heads_that_do_not_divide_the_heads(raw_config):
    with pytest.raises(
        ConfigError, match=r"num_key_value_heads 3 .*config.json.* does not divide num_attention_heads 4"
    ):
        ModelConfig.from_raw_config(raw_config | {"num_key_value_heads": 3})


def test_model_config_refuses_heads_that_do_not_divide_the_width_unless_head_dim_is_named(raw_config):
    raw_config |= {"num_attention_heads": 5}
    with pytest.raises(ConfigError, match=r"hidden_size 24 .*config.json.*no multiple .* 5; .*must name head_dim"):
        ModelConfig.from_raw_config(raw_config)
    assert ModelConfig.from_raw_config(raw_config | {"head_dim": 6}).head_dim == 6


@pytest.mark.parametrize("changes", [{"head_dim": 7}, {"hidden_size": 12}], ids=["named", "derived"])
def test_model_config_refuses_an_odd_head(raw_config, changes):
    with pytest.raises(ConfigError, match=r"head_dim [73] .*config.json.* is odd"):
        ModelConfig.from_raw_config(raw_config | changes)


@pytest.mark.parametrize("value", [-1e-6, 1, "1e-6", True, None, float("nan")], ids=repr)
def test_model_config_refuses_an_epsilon_out_of_range(raw_config, value):
    with pytest.raises(ConfigError, match=r"rms_norm_eps .*config.json.* must be a number from 0 to below 1") as caught:
        ModelConfig.from_raw_config(raw_config | {"rms_norm_eps": value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
@pytest.mark.parametrize("value", [0, 1, "true", []], ids=repr)
def test_model_config_refuses_a_flag_that_is_neither_true_nor_false(raw_config, name, value):
    with pytest.raises(ConfigError, match=f"{name} in config.json is .* must be true or false"):
        ModelConfig.from_raw_config(raw_config | {name: value})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({"dtype": "torch.float32"}, "float32"),
        ({"dtype": "float16", "torch_dtype": "float16"}, "float16"),
        ({"torch_dtype": "bf16"}, "bfloat16"),
        ({"torch_dtype": "torch.half"}, "float16"),
        ({"torch_dtype": "float"}, "float32"),
        ({"torch_dtype": "BFloat16"}, "bfloat16"),
        ({"torch_dtype": "auto"}, None),
        ({"torch_dtype": "int4"}, "int4"),
    ],
    ids=str,
)
def test_model_config_reads_the_dtype_by_either_key(raw_config, changes, expected):
    assert ModelConfig.from_raw_config(raw_config | changes).dtype_name == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=5), children, max_size=2),
    max_leaves=4,
)
KEYS = [*REQUIRED, *OPTIONAL, "architectures", "model_type", "dtype", "layer_types", "rope_scaling", "rope_parameters"]


@settings(deadline=None)
@given(changes=st.dictionaries(st.sampled_from(KEYS), json_values, min_size=1, max_size=2))
def test_model_config_never_fails_without_naming_what_is_wrong(changes):
    raw_config = {
        "model_type": "llama",
        "vocab_size": 97,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    } | changes
    try:
        ModelConfig.from_raw_config(json.loads(json.dumps(raw_config)))
    except RefinferError as error:
        assert "config.json" in str(error)  # noqa: PT017 (a value that loads is fine too)


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ({}, 128),
        ({"rope_type": "linear", "factor": 4.0}, 512),
        ({"rope_type": "linear", "factor": 2.515625}, 322),
        ({"rope_type": "linear", "factor": 0.5}, 128),
        ({"rope_type": "linear", "factor": 1e308}, 128 * int(1e308)),
        (LLAMA3 | {"original_max_position_embeddings": 32}, 128),
        (LLAMA3, 1024),
    ],
)
def test_scaling_stretches_the_length_unless_the_file_says_that_it_has(raw_config, rope, expected):
    assert ModelConfig.from_raw_config(raw_config | {"rope_scaling": rope}).max_scaled_positions == expected


def test_length_without_a_bound_is_no_overflow(raw_config):
    changes = {"max_position_embeddings": 10**400, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert ModelConfig.from_raw_config(raw_config | changes).max_scaled_positions == 2 * 10**400

"""RoPE settings: older and newer keys, contradictions, and numbers out of range."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from refinfer.config.rope_config import DEFAULT_ROPE_THETA, RopeConfig
from refinfer.errors import ConfigError, UnsupportedModelError

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

thetas = st.sampled_from([10000.0, 10000, 500000.0, 100000, 130000.0, 17.5])
factors = st.sampled_from([1.0, 2.0, 4, 8.0, 32.0, 2.5])
scalings = st.one_of(
    st.just({"rope_type": "default"}),
    st.fixed_dictionaries({"rope_type": st.just("linear"), "factor": factors}),
    st.fixed_dictionaries(
        {
            "rope_type": st.just("llama3"),
            "factor": factors,
            "low_freq_factor": st.sampled_from([1.0, 1, 0.5]),
            "high_freq_factor": st.sampled_from([4.0, 4, 1.5]),
        },
        optional={"original_max_position_embeddings": st.sampled_from([16, 64, 8192])},
    ),
)


def reference_rope(raw_config):
    """What the reference makes of the same file, as ours says it."""
    config = LlamaConfig.from_dict(dict(raw_config))
    config.standardize_rope_params()  # as its rotary module does before it reads
    parameters: dict[str, Any] = config.to_dict()["rope_parameters"]
    numbers: dict[str, Any] = {name: float(value) for name, value in parameters.items() if name != "rope_type"}
    return RopeConfig(parameters["rope_type"], **numbers)


def older_keys(scaling, theta, type_key):
    """The same settings as files before `rope_parameters` have them."""
    table = {type_key if name == "rope_type" else name: value for name, value in scaling.items()}
    return {"rope_theta": theta, "rope_scaling": None if table == {type_key: "default"} else table}


@settings(deadline=None)
@given(scaling=scalings, theta=thetas, type_key=st.sampled_from(["rope_type", "type"]))
def test_older_and_newer_keys_give_what_the_reference_reads(scaling, theta, type_key):
    length = {"max_position_embeddings": 128}
    newer = length | {"rope_parameters": scaling | {"rope_theta": theta}}
    older = length | older_keys(scaling, theta, type_key)
    expected = reference_rope(newer)
    assert RopeConfig.from_raw_config(newer) == expected
    assert RopeConfig.from_raw_config(older) == expected
    assert RopeConfig.from_raw_config(older | newer) == expected, "a file may hold both where they agree"


@pytest.mark.parametrize(
    "raw_config",
    [
        pytest.param({}, id="no-key"),
        pytest.param({"rope_scaling": None, "rope_parameters": None, "rope_theta": None}, id="all-null"),
        pytest.param({"rope_scaling": {}, "rope_parameters": {}}, id="empty-tables"),
        pytest.param({"rope_parameters": {"rope_type": "default"}}, id="type-alone"),
        pytest.param({"rope_parameters": {"rope_theta": 10000}}, id="theta-alone"),
        pytest.param({"rope_scaling": {"type": "default", "factor": None}}, id="null-in-table"),
        pytest.param({"rope_scaling": {"type": None}}, id="null-type"),
        pytest.param({"rope_scaling": {"factor": 1.0}}, id="factor-of-one-without-type"),
        pytest.param({"rope_scaling": {"type": "default", "factor": 1.0}}, id="factor-of-one"),
        pytest.param({"partial_rotary_factor": 1.0}, id="whole-head-is-rotated"),
    ],
)
def test_rope_config_falls_back_to_plain_rope_where_nothing_is_said(raw_config):
    assert RopeConfig.from_raw_config(raw_config) == RopeConfig("default", DEFAULT_ROPE_THETA)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_config_takes_the_longest_length_where_llama3_names_no_original_one(key):
    table = {name: value for name, value in LLAMA3.items() if name != "original_max_position_embeddings"}
    rope = RopeConfig.from_raw_config({key: table, "max_position_embeddings": 96})
    assert rope.original_max_position_embeddings == 96


def test_rope_config_takes_the_default_length_where_llama3_names_none_at_all():
    table = {name: value for name, value in LLAMA3.items() if name != "original_max_position_embeddings"}
    raw_config = {"rope_parameters": table | {"rope_theta": 10000.0}}
    assert RopeConfig.from_raw_config(raw_config) == reference_rope(raw_config)


def test_rope_config_takes_the_original_length_from_the_top_level():
    table = {name: value for name, value in LLAMA3.items() if name != "original_max_position_embeddings"}
    raw_config = {"rope_scaling": table, "rope_theta": 10000.0, "original_max_position_embeddings": 48}
    assert RopeConfig.from_raw_config(raw_config) == reference_rope(raw_config)


@pytest.mark.parametrize(
    "rope_type", ["yarn", "dynamic", "longrope", "su", "proportional", "LLAMA3", "", 3, ["linear"]]
)
@pytest.mark.parametrize(
    "place", [("rope_parameters", "rope_type"), ("rope_scaling", "rope_type"), ("rope_scaling", "type")]
)
def test_rope_config_refuses_an_unknown_rope_type(place, rope_type):
    table, key = place
    with pytest.raises(UnsupportedModelError) as caught:
        RopeConfig.from_raw_config({table: {key: rope_type, "factor": 2.0}})
    message = str(caught.value)
    assert "config.json" in message
    assert repr(rope_type) in message
    assert "default, linear, llama3" in message


@pytest.mark.parametrize(
    ("raw_config", "key"),
    [
        pytest.param({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, "rope_theta", id="theta"),
        pytest.param({"rope_theta": 1e4, "rope_scaling": {"rope_theta": 5e5}}, "rope_theta", id="theta-in-scaling"),
        pytest.param(
            {"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 2.0}}, "rope_type", id="two-types"
        ),
        pytest.param(
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}},
            "rope_type",
            id="types-of-two-tables",
        ),
        pytest.param(
            {"rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"factor": 32.0}}, "factor", id="factors-of-two-tables"
        ),
        pytest.param(
            {"rope_parameters": LLAMA3, "original_max_position_embeddings": 8192},
            "original_max_position_embeddings",
            id="original-length",
        ),
        pytest.param(
            {"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 1.0}},
            "partial_rotary_factor",
            id="partial-rotary-factor",
        ),
    ],
)
def test_rope_config_refuses_keys_that_contradict_each_other(raw_config, key):
    with pytest.raises(ConfigError, match=f"^{key} is .* in .* and .* in .* of config.json; keep the one"):
        RopeConfig.from_raw_config(raw_config)


@pytest.mark.parametrize(
    "raw_config",
    [
        pytest.param({"rope_scaling": {"factor": 2.0}}, id="factor"),
        pytest.param({"rope_scaling": {"type": None, "factor": 2.0}}, id="type-is-null"),
        pytest.param({"rope_scaling": {"attention_factor": 0.5}}, id="attention-factor"),
        pytest.param({"rope_parameters": {"low_freq_factor": 1.0}}, id="band"),
        pytest.param({"rope_parameters": {"message": 1}}, id="unknown-key"),
    ],
)
def test_rope_config_refuses_a_setting_without_its_type(raw_config):
    """A scaling factor without its type would otherwise be left out in silence, and every angle be wrong."""
    with pytest.raises(ConfigError, match=r"config.json has no use for .*; name the type"):
        RopeConfig.from_raw_config(raw_config)


UNUSED = {"attention_factor": 0.5, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.7, "mrope_section": [2, 1]}


@pytest.mark.parametrize(
    ("table", "unused"),
    [
        ({"rope_type": "default"}, {"factor": 8.0}),
        ({"type": "linear", "factor": 4.0}, {"low_freq_factor": 1.0}),
        ({"type": "linear", "factor": 4.0}, UNUSED),
        (LLAMA3, UNUSED),
    ],
    ids=["factor-of-default", "band-of-linear", "yarn-of-linear", "yarn-of-llama3"],
)
def test_rope_config_passes_over_what_the_named_type_does_not_read(table, unused):
    """The reference computes the same, and files keep such settings of a type that they had before."""
    raw_config = {"rope_theta": 100.0, "max_position_embeddings": 128}
    with pytest.warns(UserWarning, match="passed over, as by the reference") as caught:
        rope = RopeConfig.from_raw_config(raw_config | {"rope_scaling": table | unused})
    assert all(name in str(caught[0].message) for name in unused)
    assert rope == RopeConfig.from_raw_config(raw_config | {"rope_scaling": table})
    assert torch.equal(
        reference_frequencies(raw_config | {"rope_scaling": table | unused}),
        reference_frequencies(raw_config | {"rope_scaling": table}),
    )


def reference_frequencies(raw_config):
    """The reference's inverse frequencies for a file's rotary settings."""
    config = LlamaConfig.from_dict(copy.deepcopy(raw_config) | {"hidden_size": 32, "num_attention_heads": 4})
    frequencies: torch.Tensor = LlamaRotaryEmbedding(config).inv_freq
    return frequencies


@pytest.mark.parametrize(
    "table",
    [
        {"type": "linear", "factor": 4.0, "original_max_position_embeddings": 32},
        {"type": "linear", "factor": 4.0, "attention_factor": 1.0},
        {"type": "linear", "factor": 4.0, "attention_factor": None, "beta_fast": None},
        {"type": "linear", "factor": 4.0, "finetuned": True},
    ],
    ids=str,
)
def test_rope_config_says_nothing_of_settings_at_which_nothing_changes(table):
    """A warning would be an error here."""
    assert RopeConfig.from_raw_config({"rope_scaling": table}) == RopeConfig("linear", factor=4.0)


@pytest.mark.parametrize("value", [0.5, 0.0, 2, "1.0"])
def test_rope_config_refuses_a_head_that_is_rotated_in_part(value):
    with pytest.raises(UnsupportedModelError, match=f"partial_rotary_factor {value} .*config.json.*only 1.0"):
        RopeConfig.from_raw_config({"partial_rotary_factor": value})


@pytest.mark.parametrize("value", [0, -1.0, True, "8", [8], float("inf"), float("nan"), 10**400], ids=str)
@pytest.mark.parametrize("name", ["rope_theta", "factor", "low_freq_factor", "original_max_position_embeddings"])
def test_rope_config_refuses_a_number_out_of_range(name, value):
    with pytest.raises(ConfigError, match=f"^{name} .*config.json.* needs a positive number") as caught:
        RopeConfig.from_raw_config({"rope_parameters": LLAMA3 | {name: value}})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ["factor", "low_freq_factor", "high_freq_factor"])
def test_rope_config_refuses_llama3_without_one_of_its_numbers(name):
    table = {key: value for key, value in LLAMA3.items() if key != name}
    with pytest.raises(ConfigError, match=f"^{name} .* is None; RoPE type 'llama3' needs a positive number"):
        RopeConfig.from_raw_config({"rope_scaling": table})


@pytest.mark.parametrize("low", [4.0, 4, 5.0])
def test_rope_config_refuses_bands_in_the_wrong_order(low):
    with pytest.raises(ConfigError, match=r"low_freq_factor .*config.json.* must lie below high_freq_factor"):
        RopeConfig.from_raw_config({"rope_scaling": LLAMA3 | {"low_freq_factor": low}})
    assert RopeConfig.from_raw_config({"rope_scaling": LLAMA3 | {"low_freq_factor": 3.99}}).low_freq_factor == 3.99


@pytest.mark.parametrize("table", [[], "linear", 2.0, {"full_attention": {"rope_type": "default"}}], ids=str)
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_config_refuses_a_table_that_is_not_flat(key, table):
    with pytest.raises(ConfigError, match=f"^{key} in config.json is .* must be one flat object"):
        RopeConfig.from_raw_config({key: table})

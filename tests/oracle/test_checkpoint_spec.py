import json
import math
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from transformers import LlamaConfig

from oracle.checkpoint_spec import ROPE_TYPES, CheckpointSpec, llama_3_2_1b_spec
from oracle.checkpoint_weights import weight_shapes
from oracle.errors import ScenarioError
from refinfer.config import RopeConfig
from refinfer.config.rope_config import SUPPORTED_ROPE_TYPES

OTHER_VALUES = CheckpointSpec(
    seed=1,
    hidden_size=96,
    intermediate_size=48,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=20,
    vocab_size=300,
    rope_type="llama3",
    rope_theta=500000.0,
    rope_factor=32.0,
    low_freq_factor=1.0,
    high_freq_factor=2.0,
    original_max_position_embeddings=16,
    max_position_embeddings=256,
    norm_eps=1e-6,
    tie_word_embeddings=True,
    attention_bias=True,
    mlp_bias=True,
    dtype="bfloat16",
    legacy_rope_keys=True,
    num_shards=2,
    eos_token_ids=(1, 6),
    num_tied_rows=3,
    num_near_tied_rows=2,
    sensitive=False,
    with_tokenizer=True,
)
"""Differs from the defaults in every field."""


def test_every_field_changes_the_digest():
    plain = CheckpointSpec()
    # Room for every other value, so that one field at a time can be changed.
    room = replace(plain, vocab_size=291, num_heads=4)
    other = asdict(OTHER_VALUES) | {"num_heads": 2}
    digests = {replace(room, **{field.name: other[field.name]}).digest for field in fields(CheckpointSpec)}
    assert len(digests | {room.digest}) == len(fields(CheckpointSpec)) + 1


def test_digest_survives_json():
    raw: dict[str, Any] = json.loads(json.dumps(asdict(OTHER_VALUES)))
    again = CheckpointSpec(**{**raw, "eos_token_ids": tuple(raw["eos_token_ids"])})
    assert again == OTHER_VALUES
    assert again.digest == OTHER_VALUES.digest


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"rope_type": "yarn"}, "rope_type 'yarn'"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_kv_heads 3 does not divide"),
        ({"num_heads": 3, "num_kv_heads": 1}, "no multiple of num_heads 3"),
        ({"head_dim": 15}, "head_dim 15 is odd"),
        ({"with_tokenizer": True}, "vocab_size 131 is below"),
        ({"num_tied_rows": 40, "num_near_tied_rows": 30}, "vocab_size 131 is below 140"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_spec_refuses_values_that_do_not_go_together(changes, words):
    with pytest.raises(ScenarioError, match=words):
        CheckpointSpec(**changes)


def test_every_rope_type_that_the_engine_runs_can_be_generated():
    assert ROPE_TYPES == SUPPORTED_ROPE_TYPES


@pytest.mark.parametrize("rope_type", ROPE_TYPES)
def test_engine_reads_every_rope_setting_that_is_written(rope_type):
    rope = RopeConfig.from_raw_config(CheckpointSpec(rope_type=rope_type).raw_config())
    assert rope.rope_type == rope_type


@pytest.mark.parametrize("rope_type", ROPE_TYPES)
def test_both_forms_of_config_mean_the_same_to_the_reference(rope_type):
    spec = replace(OTHER_VALUES, rope_type=rope_type)
    older = LlamaConfig(**spec.raw_config()).to_dict()
    newer = LlamaConfig(**replace(spec, legacy_rope_keys=False).raw_config()).to_dict()
    assert older == newer
    assert older["rope_parameters"]["rope_theta"] == 500000.0


def test_config_names_no_special_id_unless_there_is_one():
    """The reference would put ids of its own where a file says nothing."""
    config = LlamaConfig(**CheckpointSpec().raw_config())
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (None, None, None)


def wavelengths_by_band(spec):
    count = {"kept": 0, "blended": 0, "scaled": 0}
    for place in range(0, spec.head_dim, 2):
        wavelength = 2 * math.pi * spec.rope_theta ** (place / spec.head_dim)
        turns = spec.original_max_position_embeddings / wavelength
        kept, scaled = turns > spec.high_freq_factor, turns < spec.low_freq_factor
        count["kept" if kept else "scaled" if scaled else "blended"] += 1
    return count


@pytest.mark.parametrize("rope_theta", [10000.0, 500000.0])
@pytest.mark.parametrize("head_dim", [8, 10, 12, 16, 20, 24, 32, 64])
def test_default_factors_meet_all_bands_of_llama3_scaling(head_dim, rope_theta):
    bands = wavelengths_by_band(CheckpointSpec(rope_type="llama3", head_dim=head_dim, rope_theta=rope_theta))
    assert min(bands.values()) >= 1, bands


def test_large_spec_has_the_published_number_of_parameters():
    assert sum(map(math.prod, weight_shapes(llama_3_2_1b_spec()).values())) == 1_235_814_400

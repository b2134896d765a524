"""End-of-sequence ids: which file decides, and what is refused."""

import json

import pytest
from transformers import GenerationConfig

from refinfer.config import load_eos_token_ids
from refinfer.errors import CheckpointError, ConfigError


def write(folder, raw_config, config=None, generation=None):
    """Writes config.json with more keys, and generation_config.json where one is given."""
    (folder / "config.json").write_text(json.dumps(raw_config | (config or {})))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))


def reference_eos_token_ids(folder):
    """What the reference's model would stop at: its generation config, made as loading the model makes it."""
    try:
        generation_config = GenerationConfig.from_pretrained(folder)
    except OSError:
        generation_config = GenerationConfig.from_pretrained(
            folder, config_file_name="config.json", _from_model_config=True
        )
    value = generation_config.eos_token_id
    return tuple(value) if isinstance(value, list) else () if value is None else (value,)


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        pytest.param({"eos_token_id": 2}, None, (2,), id="config-alone"),
        pytest.param({"eos_token_id": [2, 5]}, None, (2, 5), id="several-in-config"),
        pytest.param({"eos_token_id": 2}, {"eos_token_id": 7}, (7,), id="generation-config-wins"),
        pytest.param({"eos_token_id": 2}, {"eos_token_id": [9, 7]}, (9, 7), id="several-in-generation-config"),
        pytest.param({"eos_token_id": 0}, None, (0,), id="id-zero"),
        pytest.param({"eos_token_id": None}, None, (), id="null"),
        pytest.param({}, None, (), id="absent"),
        pytest.param({"eos_token_id": None}, {"eos_token_id": 3}, (3,), id="only-in-generation-config"),
    ],
)
def test_load_eos_token_ids_matches_reference(tmp_path, raw_config, config, generation, expected):
    write(tmp_path, raw_config, config, generation)
    assert load_eos_token_ids(tmp_path) == expected == reference_eos_token_ids(tmp_path)


def test_load_eos_token_ids_gives_each_id_once(tmp_path, raw_config):
    write(tmp_path, raw_config, {"eos_token_id": [5, 2, 5]})
    assert load_eos_token_ids(tmp_path) == (5, 2)


def test_load_eos_token_ids_looks_into_config_where_generation_config_is_silent(tmp_path, raw_config):
    """The reference would never stop here; a request that ends where its model says is the better answer."""
    write(tmp_path, raw_config, {"eos_token_id": 2}, {"do_sample": False})
    assert load_eos_token_ids(tmp_path) == (2,)
    assert reference_eos_token_ids(tmp_path) == ()


@pytest.mark.parametrize("value", [-1, True, "2", 2.0, [2, None], [[2]], {"id": 2}], ids=repr)
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_load_eos_token_ids_refuses_what_is_no_id(tmp_path, raw_config, file, value):
    wrong = {"eos_token_id": value}
    write(tmp_path, raw_config, *((wrong, None) if file == "config.json" else ({}, wrong)))
    with pytest.raises(ConfigError, match="it must be one token id or a list of them") as caught:
        load_eos_token_ids(tmp_path)
    assert str(tmp_path / file) in str(caught.value)
    assert repr(value) in str(caught.value)


def test_load_eos_token_ids_refuses_a_broken_generation_config(tmp_path, raw_config):
    write(tmp_path, raw_config)
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        load_eos_token_ids(tmp_path)

"""A checkpoint comes back from its GGUF file as it went in, read by the reader of this project."""

import json

import gguf
import numpy as np
import pytest

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_files import read_config, read_weights
from oracle.engines.adapters.llama_gguf import gguf_name, write_llama_gguf
from refinfer.model.gguf import convert_gguf

SPECS = {
    "plain": CheckpointSpec(),
    "grouped heads of another width": CheckpointSpec(hidden_size=48, num_heads=6, num_kv_heads=2, head_dim=16),
    "biases": CheckpointSpec(attention_bias=True, mlp_bias=True),
    "tied": CheckpointSpec(tie_word_embeddings=True),
    "linear": CheckpointSpec(rope_type="linear"),
}


def without_vocabulary(path):
    """Takes the word away that the file has no tokenizer, since this project's reader knows none of that name."""
    reader = gguf.GGUFReader(path)
    kind = reader.fields.pop("tokenizer.ggml.model")
    assert kind.contents() == "none"
    return reader


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_weights_and_settings_come_back(tmp_path, monkeypatch, spec):
    folder = write_checkpoint(spec, tmp_path / "checkpoint")
    write_llama_gguf(folder, tmp_path / "model.gguf")
    monkeypatch.setattr("refinfer.model.gguf._open", without_vocabulary)
    back = tmp_path / "back"
    back.mkdir()
    convert_gguf(tmp_path / "model.gguf", back)
    due, found = read_weights(folder), read_weights(back)
    assert found.keys() == due.keys()
    assert all(np.array_equal(found[name], weight) for name, weight in due.items())
    settings = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps")
    due_config, found_config = read_config(folder), read_config(back)
    assert {key: found_config[key] for key in settings} == pytest.approx({key: due_config[key] for key in settings})
    assert found_config["rope"] == pytest.approx(due_config["rope"])


def test_llama3_factors_stand_beside_the_weights(tmp_path):
    folder = write_checkpoint(CheckpointSpec(rope_type="llama3"), tmp_path / "checkpoint")
    write_llama_gguf(folder, tmp_path / "model.gguf")
    names = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert names["rope_freqs.weight"].shape == (CheckpointSpec().head_dim // 2,)


def test_matrices_can_be_halves(tmp_path):
    write_llama_gguf(write_checkpoint(CheckpointSpec(), tmp_path / "a"), tmp_path / "b.gguf", dtype="float16")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "b.gguf").tensors}
    assert (kinds["output.weight"], kinds["output_norm.weight"]) == ("F16", "F32")


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.other.weight", "x"])
def test_weight_without_a_place_is_refused(name):
    with pytest.raises(Refused, match=f"weight {name} has no place in a GGUF file"):
        gguf_name(name)


def test_activation_that_the_file_cannot_hold_is_refused(tmp_path):
    """A model of the same weights with another activation would be judged against the checkpoint's."""
    folder = write_checkpoint(CheckpointSpec(), tmp_path / "a")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    with pytest.raises(Refused, match="no place for hidden_act 'gelu'"):
        write_llama_gguf(folder, tmp_path / "b.gguf")

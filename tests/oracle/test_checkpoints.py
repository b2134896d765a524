import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LlamaForCausalLM

from oracle.checkpoints import (
    CheckpointSpec,
    cached_checkpoint,
    default_cache_root,
    llama_3_2_1b_spec,
    make_weights,
    write_checkpoint,
)
from refinfer import load_model

SPEC = CheckpointSpec(
    vocab_size=300,
    attention_bias=True,
    num_shards=2,
    dtype="bfloat16",
    eos_token_ids=(1, 6),
    with_tokenizer=True,
)

ASK = """
import sys
from pathlib import Path
from oracle.checkpoints import CheckpointSpec, cached_checkpoint
print(cached_checkpoint(CheckpointSpec(num_layers=4, num_shards=3), Path(sys.argv[1])))
"""


def contents(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("dtype", "sha256"),
    [
        ("float32", "b648bdb51d39aa92c4a81208cd9cbb1f44bbf83425550112017c5300921a20b7"),
        ("float64", "a8541c0716c5e1ba114fdcb42a9ec763528c9168f8d2c7a46362f5a7409b14a4"),
        ("bfloat16", "b5791460f943268d193960d4e53175d0c8919f129856e9a7d68f46f3cd4558c1"),
        ("float16", "7ede6c4e3eec76fded420787f30c3ba4e4d007f28ea05b9ddaab510cc355d917"),
    ],
    ids=["float32", "float64", "bfloat16", "float16"],
)
def test_weight_file_has_the_same_bytes_on_every_machine(tmp_path, dtype, sha256):
    write_checkpoint(CheckpointSpec(dtype=dtype, mlp_bias=True, num_near_tied_rows=4), tmp_path)
    assert contents(tmp_path)["model.safetensors"] == sha256


@pytest.mark.parametrize("tie_word_embeddings", [False, True])
@pytest.mark.parametrize("num_shards", [1, 3])
def test_checkpoint_gives_the_reference_every_weight(tmp_path, num_shards, tie_word_embeddings):
    spec = CheckpointSpec(num_shards=num_shards, tie_word_embeddings=tie_word_embeddings, mlp_bias=True)
    write_checkpoint(spec, tmp_path)
    loaded: Any = LlamaForCausalLM.from_pretrained(tmp_path, output_loading_info=True, dtype=torch.float32)
    model, report = loaded
    assert not any(report.values()), report
    parameter_by_name = dict(model.named_parameters())
    for name, weight in make_weights(spec):
        assert torch.equal(parameter_by_name[name], torch.from_numpy(weight)), name


def test_checkpoint_loads_into_the_engine(tmp_path):
    model = load_model(write_checkpoint(SPEC, tmp_path))
    assert model.config.vocab_size == 300


def test_eos_ids_stand_whole_in_the_generation_config_only(tmp_path):
    """Llama 3 checkpoints are like that, and who reads one file only misses ids."""
    write_checkpoint(SPEC, tmp_path)
    assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == [1, 6]
    assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] == 1


def test_cached_checkpoint_is_written_once(tmp_path):
    folder = cached_checkpoint(SPEC, tmp_path)
    places = {path: path.stat().st_ino for path in folder.iterdir()}
    assert cached_checkpoint(SPEC, tmp_path) == folder
    assert {path: path.stat().st_ino for path in folder.iterdir()} == places
    assert list(tmp_path.iterdir()) == [folder]


def test_cached_checkpoint_equals_a_written_one(tmp_path):
    written = write_checkpoint(SPEC, tmp_path / "written")
    assert contents(cached_checkpoint(SPEC, tmp_path / "cache")) == contents(written)


def test_cached_checkpoint_is_made_whole_again_when_a_file_is_gone(tmp_path):
    before = contents(cached_checkpoint(SPEC, tmp_path))
    for name in before:
        (tmp_path / SPEC.digest / name).unlink()
        assert contents(cached_checkpoint(SPEC, tmp_path)) == before, name


def test_cached_checkpoint_leaves_nothing_behind_when_writing_fails(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("oracle.checkpoints.write_weights", fail)
    with pytest.raises(MemoryError):
        cached_checkpoint(SPEC, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_processes_that_ask_at_once_get_one_complete_folder(tmp_path):
    processes = [
        subprocess.Popen([sys.executable, "-c", ASK, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = {process.communicate()[0].strip() for process in processes}
    (folder,) = tmp_path.iterdir()
    assert answers == {str(folder)}
    assert contents(folder) == contents(write_checkpoint(CheckpointSpec(num_layers=4, num_shards=3), tmp_path / "own"))


def test_default_cache_root_lies_among_temporary_files():
    assert default_cache_root().parent == Path(tempfile.gettempdir())


@pytest.mark.large
def test_large_checkpoint_comes_in_shards_of_about_one_gigabyte(tmp_path):
    write_checkpoint(llama_3_2_1b_spec(), tmp_path)
    sizes = [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
    assert len(sizes) == 3
    assert all(0.7e9 < size < 1.1e9 for size in sizes)

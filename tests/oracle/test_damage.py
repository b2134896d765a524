"""Hundreds of drawn damages end in our errors or in answers, and what was found so before stays found."""

import json
import shutil
import warnings
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from oracle import damage as module
from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.damage import WORKS, damage, outcome, write_torch_files
from refinfer import load_model
from refinfer.errors import InvariantError, RefinferError

pytestmark = pytest.mark.without_shape_checks

NUM_DAMAGES = 300
SHARDED: dict[str, Any] = {"num_shards": 2, "tie_word_embeddings": True, "legacy_rope_keys": True}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole checkpoint of one file and one of shards, each with a tokenizer."""
    root = tmp_path_factory.mktemp("whole")
    shape: dict[str, Any] = {"num_layers": 1, "vocab_size": 300, "with_tokenizer": True}
    return [
        write_checkpoint(CheckpointSpec(**shape, eos_token_ids=(1, 6)), root / "one"),
        write_checkpoint(CheckpointSpec(**shape, **SHARDED), root / "shards"),
    ]


@pytest.fixture
def folder(whole, tmp_path):
    """A copy to damage."""
    return shutil.copytree(whole[0], tmp_path / "checkpoint")


def test_damaged_checkpoints_answer_or_are_refused_by_our_errors(whole, tmp_path):
    words_by_kind: dict[str, str] = {}
    for seed in range(NUM_DAMAGES):
        copy = shutil.copytree(whole[seed % 2], tmp_path / "damaged")
        words = damage(copy, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whatever a damaged file makes a library say
            words_by_kind[outcome(copy)] = words
        shutil.rmtree(copy)
    assert {WORKS, "CheckpointError", "ConfigError", "WeightShapeError", "MissingWeightError"} <= set(words_by_kind)


def test_whole_checkpoints_work_in_either_format(whole, tmp_path):
    for place, source in enumerate(whole):
        copy = shutil.copytree(source, tmp_path / str(place))
        assert outcome(copy) == WORKS
        expected = dict(load_model(copy).named_parameters())
        write_torch_files(copy)
        assert not list(copy.glob("*.safetensors*"))
        assert outcome(copy, batch_invariant=False) == WORKS
        assert all(torch.equal(weight, expected[name]) for name, weight in load_model(copy).named_parameters())


def test_one_seed_does_one_damage(whole, tmp_path):
    for seed in range(40):
        found = []
        for name in ("first", "second"):
            copy = shutil.copytree(whole[1], tmp_path / f"{seed}-{name}")
            words = damage(copy, seed)
            found.append((words, {path.name: path.is_file() and path.read_bytes() for path in copy.iterdir()}))
        is_archive = any(name.endswith(".bin") for name in found[0][1])  # whose members bear the time
        assert found[0][0] == found[1][0]
        assert is_archive or found[0] == found[1]


def spoil(folder, file, **changes):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"head_dim": 10**12}),
        ("config.json", {"num_hidden_layers": 10**9}),
        ("config.json", {"vocab_size": 10**30}),
        ("tokenizer_config.json", {"chat_template": 2}),
        ("tokenizer_config.json", {"chat_template": "\ud800"}),
    ],
    ids=str,
)
def test_regression_values_that_ended_in_errors_of_libraries(folder, file, changes):
    spoil(folder, file, **changes)
    assert outcome(folder) in ("MissingWeightError", "RequestError", "ConfigError", "CheckpointError")


def test_regression_tokenizer_without_a_token_that_its_template_adds(folder):
    """The `tokenizers` library panics when a text is encoded, and a panic is no `Exception`."""
    path = folder / "tokenizer.json"
    contents = json.loads(path.read_text())
    contents["post_processor"]["special_tokens"] = {}
    path.write_text(json.dumps(contents))
    assert outcome(folder) == "CheckpointError"


def test_regression_shard_whose_name_is_no_text(whole, tmp_path):
    folder = shutil.copytree(whole[1], tmp_path / "checkpoint")
    spoil(folder, "model.safetensors.index.json", weight_map={"model.norm.weight": "\ud800"})
    assert outcome(folder) == "CheckpointError"


def test_outcome_tells_numbers_out_of_range_from_bugs_of_ours(folder, monkeypatch):
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert outcome(folder) == "InvariantError"
    monkeypatch.setattr(module, "_is_wild", lambda _model: False)
    with pytest.raises(InvariantError, match="logits hold NaN"):
        outcome(folder)


def test_outcome_lets_other_errors_through(folder, monkeypatch):
    for error, is_ours in ((RefinferError("no"), True), (RuntimeError("no"), False)):
        monkeypatch.setattr(module, "LLM", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
        if is_ours:
            assert outcome(folder) == "RefinferError"
        else:
            with pytest.raises(RuntimeError, match="no"):
                outcome(folder)

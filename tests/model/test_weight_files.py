"""Which files hold the weights: one file, shards behind an index, and what is refused."""

import json

import pytest
import torch
from safetensors.torch import save_file

from refinfer import load_model
from refinfer.errors import CheckpointError
from refinfer.model.weight_files import find_weights

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(tmp_path):
    """Two shards of one weight each, behind an index."""
    save_file({"a": torch.ones(2)}, tmp_path / FIRST)
    save_file({"b": torch.zeros(3)}, tmp_path / SECOND)
    write_index(tmp_path, {"a": FIRST, "b": SECOND})
    return tmp_path


def write_index(folder, weight_map):
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 20}, "weight_map": weight_map}))


def test_find_weights_reads_a_single_file(tmp_path):
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, tmp_path / "model.safetensors")
    assert {name: weight.shape for name, weight in find_weights(tmp_path).items()} == {"a": (2,), "b": (3,)}


def test_find_weights_reads_shards(sharded):
    found = find_weights(sharded)
    assert {name: weight.path.name for name, weight in found.items()} == {"a": FIRST, "b": SECOND}
    assert torch.equal(found["a"].read(), torch.ones(2))


def test_find_weights_takes_a_single_file_before_an_index(sharded):
    save_file({"c": torch.ones(1)}, sharded / "model.safetensors")
    assert find_weights(sharded).keys() == {"c"}


@pytest.fixture
def torch_sharded(tmp_path):
    """Two files of torch.save, behind their index."""
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.zeros(3)}, tmp_path / "pytorch_model-00002-of-00002.bin")
    weight_map = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_find_weights_reads_files_of_torch_save_where_there_are_no_safetensors(torch_sharded):
    found = find_weights(torch_sharded)
    assert torch.equal(found["a"].read(), torch.ones(2))
    assert torch.equal(found["b"].read(), torch.zeros(3))
    torch.save({"c": torch.ones(1)}, torch_sharded / "pytorch_model.bin")
    assert find_weights(torch_sharded).keys() == {"c"}, "a single file counts before an index"
    save_file({"d": torch.ones(1)}, torch_sharded / FIRST)
    write_index(torch_sharded, {"d": FIRST})
    assert find_weights(torch_sharded).keys() == {"d"}, "safetensors count before files of torch.save"


@pytest.mark.parametrize("num_shards", [1, 2, 5])
def test_single_and_sharded_checkpoints_give_one_model(tiny, tmp_path, num_shards):
    weights = tiny.drawn_weights(tiny.raw_config)
    model = load_model(tiny.write_checkpoint(tmp_path / "checkpoint", tiny.raw_config, weights, num_shards))
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name])


def test_find_weights_follows_the_links_of_a_hub_cache(sharded):
    """A hub cache keeps files elsewhere under their hash, and links to them: the index still names plain files."""
    blobs = sharded / "blobs"
    snapshot = sharded / "snapshots" / "0123"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, name in enumerate((FIRST, SECOND, INDEX)):
        (sharded / name).rename(blobs / str(number))
        (snapshot / name).symlink_to(f"../../blobs/{number}")
    assert torch.equal(find_weights(snapshot)["b"].read(), torch.zeros(3))


def test_find_weights_refuses_a_link_to_nothing(sharded):
    (sharded / SECOND).unlink()
    (sharded / SECOND).symlink_to("../gone.safetensors")
    with pytest.raises(CheckpointError, match=f"{SECOND} does not exist"):
        find_weights(sharded)


@pytest.mark.parametrize(
    "shard",
    [
        "../outside.safetensors",
        "sub/inside.safetensors",
        "./here.safetensors",
        "here.safetensors/",
        "..",
        ".",
        "",
        "/",
        "ABSOLUTE",
    ],
)
def test_find_weights_refuses_an_index_that_names_a_file_outside_the_folder(sharded, shard):
    outside = sharded.parent / "outside.safetensors"
    save_file({"b": torch.zeros(3)}, outside)
    shard = str(outside) if shard == "ABSOLUTE" else shard
    write_index(sharded, {"a": FIRST, "b": shard})
    with pytest.raises(CheckpointError, match=r"lies outside .*only plain names are read") as caught:
        find_weights(sharded)
    assert str(sharded / INDEX) in str(caught.value)
    assert repr(shard) in str(caught.value)


@pytest.mark.parametrize("shard", ["model\x00.safetensors", "\ud800", "x" * 300, 7, None, ["a"]], ids=repr)
def test_find_weights_refuses_an_index_that_names_no_file(sharded, shard):
    write_index(sharded, {"a": FIRST, "b": shard})
    with pytest.raises(CheckpointError):
        find_weights(sharded)


def test_find_weights_refuses_a_missing_shard(sharded):
    (sharded / SECOND).unlink()
    with pytest.raises(CheckpointError, match=f"{SECOND} does not exist; copy or download the missing shard"):
        find_weights(sharded)


def test_find_weights_refuses_a_truncated_shard(sharded):
    (sharded / SECOND).write_bytes((sharded / SECOND).read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=f"{SECOND} is not a whole safetensors file"):
        find_weights(sharded)


def test_find_weights_takes_weights_from_where_they_lie_whatever_the_index_says(sharded):
    """As the reference does: the index says which files there are."""
    expected = find_weights(sharded)
    write_index(sharded, {"a": SECOND, "b": FIRST, "lm_head.weight": FIRST})
    assert find_weights(sharded) == expected


def test_find_weights_refuses_a_weight_that_lies_in_two_shards(sharded):
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, sharded / SECOND)
    with pytest.raises(CheckpointError, match=f"weight a lies in {FIRST} and in {SECOND}; keep one of them"):
        find_weights(sharded)


@pytest.mark.parametrize("index", [{}, {"weight_map": None}, {"weight_map": {}}, {"weight_map": ["a"]}], ids=str)
def test_find_weights_refuses_an_index_without_a_map(sharded, index):
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="has no weight_map with a file for each weight; save the index again"):
        find_weights(sharded)


@pytest.mark.parametrize("pickle", ["adapter.bin", "consolidated.00.pth", "model.pt", "last.ckpt"])
def test_find_weights_refuses_other_names_and_reads_safetensors_beside_them(tmp_path, pickle):
    (tmp_path / pickle).write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(CheckpointError, match=r"if that is a state dict .*, save it as model\.safetensors") as caught:
        find_weights(tmp_path)
    assert pickle in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    assert find_weights(tmp_path).keys() == {"a"}


def test_find_weights_refuses_a_folder_without_weights(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"holds neither model\.safetensors, .*; copy or download") as caught:
        find_weights(tmp_path)
    assert str(tmp_path) in str(caught.value)

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from oracle.checkpoint_files import encode, weight_file_names, write_weights

SHAPES = {"a.weight": (5, 3), "b.bias": (7,), "c.weight": (2, 4), "d.weight": (11, 3)}


def rows(name):
    count = int(np.prod(SHAPES[name]))
    values = np.linspace(-3, 3, count, dtype=np.float32).reshape(SHAPES[name])
    return [values[:2], values[2:]]


@pytest.mark.parametrize("num_shards", [1, 2, 3, 6])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_weight_files_read_back_through_the_safetensors_library(tmp_path, dtype, num_shards):
    write_weights(tmp_path, SHAPES, rows, dtype=dtype, num_shards=num_shards)
    stored: dict[str, Any] = {}
    for name in weight_file_names(num_shards):
        part = safetensors.torch.load_file(tmp_path / name)
        assert not stored.keys() & part.keys()
        stored |= part
    assert stored.keys() == SHAPES.keys()
    for name, tensor in stored.items():
        expected = torch.from_numpy(np.concatenate(rows(name))).to(getattr(torch, dtype))
        assert torch.equal(tensor, expected)


def test_index_names_the_file_of_each_weight(tmp_path):
    write_weights(tmp_path, SHAPES, rows, dtype="float32", num_shards=2)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * (15 + 7 + 8 + 33)
    assert index["weight_map"].keys() == SHAPES.keys()
    for name, file_name in index["weight_map"].items():
        with safe_open(tmp_path / file_name, "numpy") as file:
            assert name in file.keys()  # noqa: SIM118 - the file is no mapping
    assert len(set(index["weight_map"].values())) == 2


def test_single_file_has_no_index(tmp_path):
    write_weights(tmp_path, SHAPES, rows, dtype="float32")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_numbers_in_a_file_lie_on_their_own_boundaries(tmp_path):
    for length in range(1, 9):
        write_weights(tmp_path, {"x" * length: (1,)}, lambda _: [np.ones(1, np.float32)], dtype="float64")
        header_size = int.from_bytes((tmp_path / "model.safetensors").read_bytes()[:8], "little")
        assert header_size % 8 == 0


def test_bfloat16_rounds_as_torch_does():
    bits = np.random.Generator(np.random.Philox(key=0)).integers(0, 2**32, 200_000, dtype=np.uint32)
    # Ties and their neighbours, on even and odd last places, are too rare to meet by chance.
    halves = (bits[:50_000] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    bits = np.concatenate([bits, halves, halves - np.uint32(1), halves + np.uint32(1)])
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    assert np.array_equal(encode(values, "bfloat16").view(np.int16), expected)


def test_write_weights_never_holds_a_whole_weight(tmp_path):
    """A checkpoint larger than the memory can be written."""
    block = np.ones((2**8, 2**10), np.float32)
    tracemalloc.start()
    write_weights(tmp_path, {"a": (2**14, 2**10)}, lambda _: (block for _ in range(64)), dtype="bfloat16")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * block.nbytes
    assert (tmp_path / "model.safetensors").stat().st_size > 2**25

"""Safetensors files: read like the format's own library reads them, and refused when they are not whole."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from refinfer.errors import CheckpointError, UnsupportedModelError
from refinfer.model.safetensors_file import SafetensorsFile

FLOAT_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

drawn_tensors = st.builds(
    lambda shape, dtype, seed: torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(FLOAT_DTYPES),
    st.integers(0, 9),
)


@settings(deadline=None)
@given(weights=st.dictionaries(st.text("abc.é", min_size=1, max_size=4), drawn_tensors, max_size=5))
def test_read_gives_what_the_formats_library_gives(weights):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file(weights, path, {"format": "pt"})
        expected, found = load_file(path), SafetensorsFile.open(path).weights
        assert {weight.name for weight in found} == expected.keys()
        for weight in found:
            assert (weight.shape, weight.dtype) == (tuple(expected[weight.name].shape), expected[weight.name].dtype)
            values = weight.read()
            assert values.dtype == expected[weight.name].dtype
            assert torch.equal(values, expected[weight.name])


@pytest.fixture
def path(tmp_path):
    """A file of three weights."""
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(3, 5), "b": torch.arange(8).to(torch.float16), "c": torch.zeros(1)}, path)
    return path


def test_read_gives_memory_of_its_own(path):
    weights = {weight.name: weight for weight in SafetensorsFile.open(path).weights}
    values = weights["a"].read()
    path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(values, torch.ones(3, 5)), "a change of the file later must not reach the model"
    assert torch.equal(weights["a"].read(), torch.zeros(3, 5))


def test_open_refuses_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist; copy or download the missing shard") as caught:
        SafetensorsFile.open(tmp_path / "model-00002-of-00002.safetensors")
    assert "model-00002-of-00002.safetensors" in str(caught.value)


@settings(deadline=None)
@given(data=st.data())
def test_open_refuses_a_file_cut_anywhere(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    path = folder / "model.safetensors"
    save_file({"a": torch.ones(3, 5), "b": torch.ones(2)}, path)
    content = path.read_bytes()
    length = data.draw(st.integers(0, len(content) - 1), label="length")
    path.write_bytes(content[:length])
    with pytest.raises(CheckpointError, match=r"is not a whole safetensors file .*copy or download it again") as caught:
        SafetensorsFile.open(path)
    assert str(path) in str(caught.value)
    assert f"it has {length} bytes" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x02}q\x00.", id="pickle"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", id="lfs-pointer"),
        pytest.param((2).to_bytes(8, "little") + b"[]", id="header-is-a-list"),
        pytest.param((4).to_bytes(8, "little") + b"\xff\xff\xff\xff", id="header-is-not-text"),
        pytest.param((2**62).to_bytes(8, "little") + b"{}", id="header-longer-than-any-file"),
    ],
)
def test_open_refuses_what_is_no_safetensors_file(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
        SafetensorsFile.open(path)


def test_open_refuses_a_file_with_bytes_that_no_weight_owns(path):
    path.write_bytes(path.read_bytes() + b"\x00")
    with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
        SafetensorsFile.open(path)


def test_open_refuses_a_folder(tmp_path):
    with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
        SafetensorsFile.open(tmp_path)


def test_read_refuses_a_file_that_became_shorter(path):
    weights = {weight.name: weight for weight in SafetensorsFile.open(path).weights}
    path.write_bytes(path.read_bytes()[:-1])
    last = max(weights.values(), key=lambda weight: weight.offset)
    with pytest.raises(CheckpointError, match=f"ends inside weight {last.name}; copy or download the file again"):
        last.read()


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool, torch.float8_e4m3fn], ids=str
)
def test_stored_weight_refuses_a_dtype_that_no_model_runs_in(tmp_path, dtype):
    path = tmp_path / "model.safetensors"
    save_file({"model.norm.weight": torch.ones(4).to(dtype)}, path)
    (weight,) = SafetensorsFile.open(path).weights
    with pytest.raises(UnsupportedModelError, match="not implemented; use a checkpoint stored as one of F64") as caught:
        weight.read()
    assert "model.safetensors: weight model.norm.weight is stored as " in str(caught.value)
    assert weight.dtype_code in str(caught.value)


def test_open_leaves_out_metadata(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(2)}, path, {"format": "pt", "note": json.dumps({"dtype": "F32"})})
    assert [weight.name for weight in SafetensorsFile.open(path).weights] == ["a"]

"""Files of torch.save: read like torch reads them, and refused where they hold more than weights."""

import pickle
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.errors import CheckpointError, UnsupportedModelError
from refinfer.model.torch_file import open_torch_file

FLOAT_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def _view(tensor, kind):
    """A tensor of other values as saved weights may be: a part of a larger one, or turned round."""
    if kind == "turned":
        return tensor.T
    if kind == "rows":
        return torch.cat([tensor, tensor])[len(tensor) :]
    return torch.cat([tensor, tensor], dim=1)[:, tensor.shape[1] :] if kind == "columns" else tensor


drawn_tensors = st.builds(
    lambda rows, columns, dtype, seed, kind: _view(
        torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(dtype), kind
    ),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from(FLOAT_DTYPES),
    st.integers(0, 9),
    st.sampled_from(["whole", "turned", "rows", "columns"]),
)


@settings(deadline=None)
@given(
    weights=st.dictionaries(st.text("abc.é", min_size=1, max_size=4), drawn_tensors, max_size=5), shares=st.booleans()
)
def test_read_gives_what_torch_gives(weights, shares):
    if shares:
        weights |= {f"again {name}": tensor for name, tensor in weights.items()}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pytorch_model.bin"
        torch.save(weights, path)
        expected, found = torch.load(path, weights_only=True), open_torch_file(path)
        assert [weight.name for weight in found] == list(expected)
        for weight in found:
            values = weight.read()
            assert (weight.shape, values.dtype) == (tuple(values.shape), expected[weight.name].dtype)
            assert values.is_contiguous()
            assert torch.equal(values, expected[weight.name])


@pytest.fixture
def path(tmp_path):
    """Where a file of torch.save goes."""
    return tmp_path / "pytorch_model.bin"


def test_open_takes_what_modules_save(path):
    module = torch.nn.Linear(2, 3)
    torch.save(module.state_dict() | {"extra": torch.nn.Parameter(torch.ones(2))}, path)
    assert {weight.name: weight.shape for weight in open_torch_file(path)} == {
        "weight": (3, 2),
        "bias": (3,),
        "extra": (2,),
    }


class Evil:
    """Runs code where a pickle is read without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_open_runs_no_code(path, tmp_path):
    torch.save({"a": torch.ones(2), "b": Evil(tmp_path / "was-here")}, path)
    with pytest.raises(CheckpointError, match=r"Unsupported .*, and nothing else in it is read or run") as caught:
        open_torch_file(path)
    assert not (tmp_path / "was-here").exists()
    assert "weights_only" not in str(caught.value), "no advice to read it with less care"
    path.write_bytes(pickle.dumps({"b": Evil(tmp_path / "was-here")}))
    with pytest.raises(CheckpointError, match=r"is no whole file of torch\.save"):
        open_torch_file(path)
    assert not (tmp_path / "was-here").exists()


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ([torch.ones(2)], "holds a list, not a state dict"),
        ({"model": {"a": torch.ones(2)}}, "holds a dict under 'model'"),
        ({"a": torch.ones(2), "step": 3}, "holds a int under 'step'"),
        ({0: torch.ones(2)}, "under 0"),
        ({"a": torch.ones(2).to_sparse()}, "only dense tensors"),
        ({"a": torch.ones(3, device="meta")}, "cannot be read as weights|too few values"),
        ({"a": torch.ones(1).expand(5)}, "too few values"),
    ],
    ids=["list", "nested", "number", "name", "sparse", "meta", "expanded"],
)
def test_open_refuses_what_is_no_state_dict_of_dense_weights(path, contents, words):
    torch.save(contents, path)
    with pytest.raises(CheckpointError, match=words) as caught:
        open_torch_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e4m3fn, torch.complex64], ids=str)
def test_read_refuses_a_dtype_that_no_model_runs_in(path, dtype):
    torch.save({"model.norm.weight": torch.ones(4).to(dtype)}, path)
    (weight,) = open_torch_file(path)
    with pytest.raises(UnsupportedModelError, match="not implemented; use a checkpoint stored as one of F64"):
        weight.read()


def test_open_refuses_the_format_before_torch_1_6_with_the_command_that_mends_it(path):
    torch.save({"a": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match=r"format before torch 1\.6") as caught:
        open_torch_file(path)
    code = shlex.split(str(caught.value).partition("python -c ")[2])[0]
    subprocess.run([sys.executable, "-c", code], check=True)
    (weight,) = open_torch_file(path)
    assert torch.equal(weight.read(), torch.ones(2))


def test_open_refuses_a_file_that_does_not_exist(path):
    with pytest.raises(CheckpointError, match="does not exist; copy or download the missing shard"):
        open_torch_file(path)


def repacked(path, **changed):
    """Writes the archive again, with other contents or another way of packing."""
    with zipfile.ZipFile(path) as archive:
        contents = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", changed.get("compression", zipfile.ZIP_STORED)) as archive:
        for name, content in contents.items():
            archive.writestr(name, changed.get(name.rpartition("/")[2], content))


@pytest.mark.parametrize(
    "changed", [{"compression": zipfile.ZIP_DEFLATED}, {"byteorder": b"big"}], ids=["packed", "big-endian"]
)
def test_open_refuses_values_that_lie_there_otherwise(path, changed):
    """They would be read as other numbers, without a word."""
    torch.save({"a": torch.ones(400)}, path)
    repacked(path)
    assert torch.equal(open_torch_file(path)[0].read(), torch.ones(400))
    repacked(path, **changed)
    with pytest.raises(CheckpointError, match=r"is packed, or has its bytes in big-endian order; save it anew"):
        open_torch_file(path)


def test_open_refuses_an_archive_written_anew_in_which_weights_lie_elsewhere(path):
    """Places are reckoned from how torch writes; what another tool wrote was read as other numbers."""
    torch.save({"a": torch.ones(400), "b": torch.zeros(3)}, path)
    repacked(path)
    with pytest.raises(CheckpointError, match="do not lie where they should; download it again, or save it anew"):
        open_torch_file(path)


def test_open_takes_an_archive_whose_members_say_where_they_lie(path):
    """Files of torch before 2.7 have no version of their format, and the archive's directory counts."""
    weights = {"a": torch.ones(400), "b": torch.zeros(3)}
    torch.save(weights, path)
    with zipfile.ZipFile(path) as archive:
        contents = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(contents, reverse=True):
            if not name.endswith((".format_version", ".storage_alignment")):
                archive.writestr(name, contents[name])
    assert all(torch.equal(weight.read(), weights[weight.name]) for weight in open_torch_file(path))


@settings(deadline=None)
@given(data=st.data())
def test_open_refuses_a_file_cut_anywhere(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "pytorch_model.bin"
    torch.save({"a": torch.ones(3, 5), "b": torch.ones(2)}, path)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1), label="length")])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        open_torch_file(path)

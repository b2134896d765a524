"""One file of `torch.save`: where its tensors lie, found without running code and without reading them."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from refinfer.errors import CheckpointError
from refinfer.model.safetensors_file import DTYPE_BY_CODE, StoredWeight

_CODE_BY_DTYPE = {dtype: code for code, dtype in DTYPE_BY_CODE.items()}
_BYTE_ORDER = "byteorder"


def open_torch_file(path: Path) -> tuple[StoredWeight, ...]:
    """Finds where each weight of a state dict lies.

    torch's `weights_only` reader unpickles nothing but tensors and plain containers, so no code of the file is run.
    It makes tensors without values, which know their place in the file, so that only those that are wanted are read.

    Raises:
        CheckpointError: The file is absent, broken, would run code, or holds something else than a state dict.
    """
    try:
        _check_archive(path)
        with FakeTensorMode():
            contents = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return tuple(_weights(path, contents))
    except FileNotFoundError as error:
        message = f"{path} does not exist; copy or download the missing shard"
        raise CheckpointError(message, path=path) from error
    except CheckpointError:
        raise
    except Exception as error:  # torch's unpickler lets every error through that a malformed file leads to
        reason = _reason(error)
        message = (
            f"{path} cannot be read as weights of torch.save alone ({reason}), and nothing else in it is read or run; "
            "download it again, or take the model as safetensors"
        )
        raise CheckpointError(message, path=path) from error


def _reason(error: Exception) -> str:
    """Gives what torch's unpickler objects to, without its advice to let the file run code after all."""
    text = str(error).partition("WeightsUnpickler error: ")[2] or str(error)
    return text.strip().partition("\n")[0].partition(". Please use")[0].rstrip(". ") or type(error).__name__


def _check_archive(path: Path) -> None:
    """Refuses what the reader would take for values that they are not, or would unpack into more than the file has."""
    num_bytes = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            is_packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            is_packed = is_packed or sum(entry.file_size for entry in entries) > num_bytes
            orders = [entry for entry in entries if entry.filename.rpartition("/")[2] == _BYTE_ORDER]
            is_little = is_packed or all(archive.read(entry) == b"little" for entry in orders)
    except zipfile.BadZipFile as error:
        message = (
            f"{path} is no whole file of torch.save, or one of the format before torch 1.6 ({error}); "
            f"it has {num_bytes} bytes, download it again, or save it anew with a present torch"
        )
        raise CheckpointError(message, path=path) from error
    if is_packed or not is_little:
        message = f"{path} is packed or has its bytes in big-endian order; save it anew with torch.save on this machine"
        raise CheckpointError(message, path=path)


def _weights(path: Path, contents: object) -> Iterator[StoredWeight]:
    if not isinstance(contents, dict):
        message = f"{path} holds a {type(contents).__name__}, not a state dict of weights by name; save that alone"
        raise CheckpointError(message, path=path)
    num_file_bytes = path.stat().st_size
    for name, tensor in contents.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
            message = (
                f"{path} holds a {type(tensor).__name__} under {name!r}; "
                "only dense tensors by their names are read, so save the state dict alone"
            )
            raise CheckpointError(message, path=path, name=name)
        yield _stored(path, name, tensor, num_file_bytes)


def _stored(path: Path, name: str, tensor: Tensor, num_file_bytes: int) -> StoredWeight:
    storage = tensor.untyped_storage()
    storage_start = storage._checkpoint_offset  # noqa: SLF001  # documented in torch's notes on serialization
    num_values = start = 0
    if tensor.numel():
        num_values = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        start = tensor.storage_offset() * tensor.itemsize
    num_bytes = num_values * tensor.itemsize
    if (
        storage_start is None
        or num_values < tensor.numel()
        or start + num_bytes > storage.nbytes()
        or storage_start + storage.nbytes() > num_file_bytes
    ):
        message = (
            f"{path} gives weight {name} the shape {tuple(tensor.shape)}, for which the file has too few values; "
            "download it again"
        )
        raise CheckpointError(message, path=path, name=name)
    return StoredWeight(
        name=name,
        path=path,
        dtype_code=_CODE_BY_DTYPE.get(tensor.dtype, str(tensor.dtype)),
        shape=tuple(tensor.shape),
        offset=storage_start + start,
        num_bytes=num_bytes,
        strides=None if tensor.is_contiguous() else tensor.stride(),
    )

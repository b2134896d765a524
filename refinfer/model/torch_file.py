"""One file of `torch.save`: where its tensors lie, found without running code and without reading them."""

import shlex
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from refinfer.errors import CheckpointError
from refinfer.model.safetensors_file import DTYPE_BY_CODE, StoredWeight

_CODE_BY_DTYPE = {dtype: code for code, dtype in DTYPE_BY_CODE.items()}

_LOCAL_HEADER = struct.Struct("<26xHH")
"""What stands before a member of a zip archive: 26 bytes, and the lengths of the name and the extra field behind it."""


def open_torch_file(path: Path) -> tuple[StoredWeight, ...]:
    """Finds where each weight of a state dict lies.

    torch's `weights_only` reader unpickles nothing but tensors and plain containers, so no code of the file is run.
    Onto the device "meta" it reads no values, and each storage knows its place in the file.

    Raises:
        CheckpointError: The file is absent, broken, would run code, or holds something else than a state dict.
    """
    try:
        size_by_start = _data_members(path)
        contents = torch.load(path, map_location="meta", weights_only=True, mmap=True)
        weight_by_name = dict(_weights(path, contents))
        _check_places(path, contents.values(), size_by_start)
    except FileNotFoundError as error:
        message = f"{path} does not exist; copy or download the missing shard"
        raise CheckpointError(message, path=path) from error
    except CheckpointError:
        raise
    except Exception as error:  # torch's unpickler lets every error through that a malformed file leads to
        message = (
            f"{path} cannot be read as weights of torch.save alone ({_reason(error)}), and nothing else in it is "
            "read or run; download it again, or take the model as safetensors"
        )
        raise CheckpointError(message, path=path) from error
    return tuple(weight_by_name.values())


def _reason(error: Exception) -> str:
    """Gives what torch's unpickler objects to, without its advice to let the file run code after all."""
    _, told, text = str(error).partition("WeightsUnpickler error: ")
    if not told:
        text = str(error)
        if "weights_only" in text:  # the advice is all there is
            return "it is damaged, or holds more than tensors"
    return text.strip().partition("\n")[0].partition(". Please use")[0].rstrip(". ") or type(error).__name__


def _data_members(path: Path) -> dict[int, int]:
    """Gives the size of each member of the archive by its first byte.

    Refuses what would be taken for other values than it is, or unpacked into more than the file has.
    """
    num_bytes = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            members = archive.infolist()
            is_packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            size_by_start = {_start(file, member): member.file_size for member in members}
            ends = [start + size for start, size in size_by_start.items()]
            is_whole = not is_packed and max(ends, default=0) <= num_bytes and len(size_by_start) == len(members)
            orders = [member for member in members if member.filename.endswith("/byteorder")] if is_whole else []
            is_little = all(archive.read(member) == b"little" for member in orders)
    except zipfile.BadZipFile as error:
        command = f"import torch; path = {str(path)!r}; torch.save(torch.load(path, weights_only=True), path)"
        message = (
            f"{path} is no whole file of torch.save, or one of the format before torch 1.6 ({error}); "
            f"it has {num_bytes} bytes; download it again, or bring it into the present format, which runs no code of "
            f"it: python -c {shlex.quote(command)}"
        )
        raise CheckpointError(message, path=path) from error
    if not is_whole or not is_little:
        message = (
            f"{path} is packed, or has its bytes in big-endian order; save it anew with torch.save on this machine"
        )
        raise CheckpointError(message, path=path)
    return size_by_start


def _start(file: BinaryIO, member: zipfile.ZipInfo) -> int:
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        message = f"{member.filename} begins behind the end"
        raise zipfile.BadZipFile(message)
    name_length, extra_length = _LOCAL_HEADER.unpack(header)
    return int(member.header_offset + _LOCAL_HEADER.size + name_length + extra_length)


def _check_places(path: Path, tensors: Any, size_by_start: dict[int, int]) -> None:
    """Holds torch's word for where storages lie to the archive: it may have reckoned it from the order of writing."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    size_by_place = {_place(storage): storage.nbytes() for storage in storages if storage.nbytes()}
    if any(place is None or size_by_start.get(place) != size for place, size in size_by_place.items()):
        message = f"the weights in {path} do not lie where they should; download it again, or save it anew"
        raise CheckpointError(message, path=path)


def _place(storage: torch.UntypedStorage) -> int | None:
    return storage._checkpoint_offset  # noqa: SLF001  # documented in torch's notes on serialization


def _weights(path: Path, contents: object) -> Iterator[tuple[str, StoredWeight]]:
    if not isinstance(contents, dict):
        message = f"{path} holds a {type(contents).__name__}, not a state dict of weights by name; save that alone"
        raise CheckpointError(message, path=path)
    for name, tensor in contents.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
            message = (
                f"{path} holds a {type(tensor).__name__} under {name!r}; "
                "only dense tensors by their names are read, so save the state dict alone"
            )
            raise CheckpointError(message, path=path, name=name)
        yield name, _stored(path, name, tensor)


def _stored(path: Path, name: str, tensor: Tensor) -> StoredWeight:
    storage = tensor.untyped_storage()
    num_values = start = 0
    if tensor.numel():
        num_values = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        start = int(tensor.storage_offset()) * tensor.itemsize
    num_bytes = num_values * tensor.itemsize
    place = _place(storage)
    if place is None or num_values < tensor.numel() or start + num_bytes > storage.nbytes():
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
        offset=place + start,
        num_bytes=num_bytes,
        strides=None if tensor.is_contiguous() else tensor.stride(),
    )

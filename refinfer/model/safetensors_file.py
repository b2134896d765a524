"""One safetensors file: its header checked, its tensors read without holding the file in memory twice."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from refinfer.errors import CheckpointError, UnsupportedModelError

DTYPE_BY_CODE = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
}
"""Dtypes that are implemented, by the format's names."""

_LENGTH_BYTES = 8
"""A file opens with the length of its JSON header, a little-endian 64-bit number."""


@dataclass(frozen=True)
class StoredWeight:
    """Where one weight lies.

    Attributes:
        name: The weight's module path.
        path: The file that holds it.
        dtype_code: The safetensors format's name of its dtype, such as "BF16".
        shape: Its shape.
        offset: First byte in the file.
        num_bytes: Its length in bytes, from the first value to the last.
        strides: How far apart neighbours of each dimension lie, in values; None where they lie densely, in order.
    """

    name: str
    path: Path
    dtype_code: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int
    strides: tuple[int, ...] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype it is stored in.

        Raises:
            UnsupportedModelError: It is no floating-point dtype that is implemented (quantised weights).
        """
        if self.dtype_code not in DTYPE_BY_CODE:
            message = (
                f"{self.path.name}: weight {self.name} is stored as {self.dtype_code}, which is not implemented; "
                f"use a checkpoint stored as one of {', '.join(DTYPE_BY_CODE)}"
            )
            raise UnsupportedModelError(message, name=self.name, dtype_code=self.dtype_code)
        return DTYPE_BY_CODE[self.dtype_code]

    def read(self) -> Tensor:
        """Reads the weight into memory of its own, in its stored dtype.

        The file is read and not mapped: mapped pages would count beside the copy,
        and weights must not change when somebody writes to the file later.

        Raises:
            CheckpointError: The file has become shorter than its header says.
        """
        values = torch.empty(self.num_bytes // self.dtype.itemsize, dtype=self.dtype)
        buffer = values.view(torch.uint8).numpy()
        with self.path.open("rb") as file:
            file.seek(self.offset)
            if file.readinto(buffer.data) != self.num_bytes:
                message = f"{self.path} ends inside weight {self.name}; copy or download the file again"
                raise CheckpointError(message, path=self.path, name=self.name)
        if self.strides is None:
            return values.view(self.shape)
        return values.as_strided(self.shape, self.strides).contiguous()


@dataclass(frozen=True)
class SafetensorsFile:
    """A safetensors file whose header was checked against its size.

    Attributes:
        path: The file.
        weights: What it holds, in the order of its header.
    """

    path: Path
    weights: tuple[StoredWeight, ...]

    @classmethod
    def open(cls, path: Path) -> "SafetensorsFile":
        """Checks a file with the safetensors library, and reads where each weight lies.

        Raises:
            CheckpointError: The file is absent, truncated, or not in the safetensors format.
        """
        try:
            with safe_open(path, framework="numpy"):
                pass
            with path.open("rb") as file:
                header_length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
                header = json.loads(file.read(header_length))
        except FileNotFoundError as error:
            message = f"{path} does not exist; copy or download the missing shard"
            raise CheckpointError(message, path=path) from error
        except (SafetensorError, OSError, ValueError) as error:
            message = (
                f"{path} is not a whole safetensors file ({error}); "
                f"it has {path.stat().st_size} bytes, copy or download it again"
            )
            raise CheckpointError(message, path=path) from error
        data_start = _LENGTH_BYTES + header_length
        weights = tuple(
            StoredWeight(
                name=name,
                path=path,
                dtype_code=entry["dtype"],
                shape=tuple(entry["shape"]),
                offset=data_start + entry["data_offsets"][0],
                num_bytes=entry["data_offsets"][1] - entry["data_offsets"][0],
            )
            for name, entry in header.items()
            if name != "__metadata__"
        )
        return cls(path=path, weights=weights)

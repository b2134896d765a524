"""Writes weights into safetensors files, block by block, one file or shards behind an index."""

import json
import math
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float, Shaped

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_CODE_BY_DTYPE = {"float32": "F32", "float64": "F64", "bfloat16": "BF16", "float16": "F16"}
_ITEM_SIZE_BY_DTYPE = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
_HEADER_ALIGNMENT = 8
"""The format pads its header so that numbers behind it lie on their own boundaries."""

Blocks = Callable[[str], Iterable[np.ndarray]]
"""Gives the rows of the weight with a name, as float32 blocks, first rows first."""


def weight_file_names(num_shards: int) -> list[str]:
    """Gives the names of the weight files, without the index."""
    if num_shards == 1:
        return [SINGLE_FILE]
    return [f"model-{shard + 1:05}-of-{num_shards:05}.safetensors" for shard in range(num_shards)]


def write_weights(
    folder: Path, shape_by_name: dict[str, tuple[int, ...]], blocks: Blocks, *, dtype: str, num_shards: int = 1
) -> None:
    """Writes weights in the order given, as one file, or as shards of about equal size with their index.

    No more than one block is held in memory.
    A shard can be empty where there are more shards than weights.

    Args:
        folder: An existing folder.
        shape_by_name: The weights.
        blocks: Gives the values of each.
        dtype: Dtype on disk; values are rounded to it, ties to even.
        num_shards: Number of files.
    """
    item_size = _ITEM_SIZE_BY_DTYPE[dtype]
    size_by_name = {name: math.prod(shape) * item_size for name, shape in shape_by_name.items()}
    shard_by_name = _spread(size_by_name, num_shards)
    for shard, file_name in enumerate(weight_file_names(num_shards)):
        names = [name for name in shape_by_name if shard_by_name[name] == shard]
        with (folder / file_name).open("wb") as file:
            _write_header(file, {name: shape_by_name[name] for name in names}, dtype)
            for name in names:
                for block in blocks(name):
                    file.write(encode(block, dtype).tobytes())
    if num_shards > 1:
        file_names = weight_file_names(num_shards)
        index = {
            "metadata": {"total_size": sum(size_by_name.values())},
            "weight_map": {name: file_names[shard] for name, shard in shard_by_name.items()},
        }
        write_json(folder / INDEX_FILE, index)


def write_json(path: Path, contents: dict[str, Any]) -> None:
    """Writes an object as JSON, in the order of its keys."""
    path.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")


def encode(values: Float[np.ndarray, "*shape"], dtype: str) -> Shaped[np.ndarray, "*shape"]:
    """Rounds float32 values to a dtype, ties to even, as little-endian numbers; bfloat16 as its bits."""
    if dtype == "bfloat16":
        bits = values.astype("<f4", copy=False).view("<u4")
        # Half of the last kept place, less one unit where that place is even: ties then round down to it.
        rounding = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        rounded: np.ndarray = (bits + rounding >> np.uint32(16)).astype("<u2")
        return rounded
    return values.astype({"float32": "<f4", "float64": "<f8", "float16": "<f2"}[dtype], copy=False)


def _spread(size_by_name: dict[str, int], num_shards: int) -> dict[str, int]:
    """Gives each weight the shard in which its middle byte falls, when all bytes are cut into equal parts."""
    total = sum(size_by_name.values())
    shard_by_name = {}
    start = 0
    for name, size in size_by_name.items():
        shard_by_name[name] = (2 * start + size) * num_shards // (2 * total)
        start += size
    return shard_by_name


def _write_header(file: BinaryIO, shape_by_name: dict[str, tuple[int, ...]], dtype: str) -> None:
    # The reference refuses a file that does not say which framework's layout it has.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in shape_by_name.items():
        end = start + math.prod(shape) * _ITEM_SIZE_BY_DTYPE[dtype]
        header[name] = {"dtype": _CODE_BY_DTYPE[dtype], "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    file.write(struct.pack("<Q", len(text)) + text)

"""Draws damage to a checkpoint: values, bytes, lengths, headers and files that are not what they should be."""

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from oracle.json_damage import damaged_json
from refinfer import LLM, SamplingParams
from refinfer.errors import InvariantError, RefinferError
from refinfer.model import Llama

WORKS = "works"
"""What becomes of a damaged checkpoint that answers all the same."""

_TAME = 1e4
"""Products of weights below it stay within float32."""

_LENGTH_BYTES = 8
_SHARE_AS_TORCH_FILES = 0.3
_ODD_LENGTHS = (0, 1, 7, 2**16, 2**31, 2**40, 2**63, 2**64 - 1)
_ODD_OFFSETS = (-1, 0, 1, 4, 2**31, 2**40, 2**63)
_ODD_SHAPES: tuple[Any, ...] = ([], [0], [1], [2**20, 2**20], [2**40], [2**63], [-1, 4], ["4"], None, 4)
_ODD_DTYPES = ("F32", "F16", "BF16", "F64", "I8", "U8", "BOOL", "F8_E4M3", "F4", "f32", "", None, 7)


def damage(folder: Path, seed: int) -> str:
    """Damages a checkpoint folder in a way that the seed decides; its weights may become files of `torch.save` first.

    Returns:
        What was done.
    """
    rng = random.Random(seed)
    if rng.random() < _SHARE_AS_TORCH_FILES:
        write_torch_files(folder)
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    path = rng.choice(paths)
    ways: list[_Way] = [_bytes, _file]
    ways += {".json": [_json] * 12, ".safetensors": [_header] * 6, ".bin": [_archive] * 6}.get(path.suffix, [])
    return f"{path.name}: {rng.choice(ways)(path, rng)}"


def outcome(folder: Path, *, batch_invariant: bool = True) -> str:
    """Loads a checkpoint and has it answer by ids, by text and in a chat.

    Args:
        folder: The checkpoint.
        batch_invariant: As for `LLM`.

    Returns:
        `WORKS`, or the name of our error that answered.

    Raises:
        InvariantError: It met a bug of ours, or says so although no weight is to blame for numbers out of range.
    """
    llm = None
    try:
        llm = LLM(folder, batch_invariant=batch_invariant, max_num_seqs=2, kv_cache_memory=2**22)
        params = SamplingParams(max_tokens=2)
        llm.generate([[0, 2]], params)
        if llm.tokenizer is not None:
            llm.generate("the first one", params)
            llm.chat([{"role": "user", "content": "the"}], params)
    except InvariantError as error:
        if llm is None or not _is_wild(llm.model):
            raise
        return type(error).__name__
    except RefinferError as error:
        return type(error).__name__
    return WORKS


def _is_wild(model: Llama) -> bool:
    """Whether some weight is so large, or no number at all, that a pass may overflow."""
    return not all(bool((parameter.abs() < _TAME).all()) for parameter in model.parameters())


def write_torch_files(folder: Path) -> None:
    """Turns the safetensors files of a checkpoint into files of `torch.save`, index included."""
    for path in sorted(folder.glob("*.safetensors")):
        torch.save(load_file(path), folder / f"pytorch_{path.stem}.bin")
        path.unlink()
    for path in folder.glob("*.safetensors.index.json"):
        text = path.read_text(encoding="utf-8").replace("model-", "pytorch_model-").replace(".safetensors", ".bin")
        (folder / "pytorch_model.bin.index.json").write_text(text, encoding="utf-8")
        path.unlink()


_Way = Callable[[Path, random.Random], str]


def _json(path: Path, rng: random.Random) -> str:
    text, words = damaged_json(path.read_text(encoding="utf-8"), rng)
    path.write_text(text, encoding="utf-8")
    return words


def _bytes(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    # Headers are short beside values, and damage to them is what loaders meet.
    length = len(content) if rng.random() < 0.5 else min(len(content), 4096)  # noqa: PLR2004
    first = rng.randrange(length)
    match rng.randrange(4):
        case 0:
            for _ in range(rng.choice((1, 1, 2, 8))):
                content[rng.randrange(length)] ^= 1 << rng.randrange(8)
            words = "some bits are turned"
        case 1:
            del content[first:]
            words = f"it ends after {first} bytes"
        case 2:
            size = rng.choice((1, 4, 64))
            content[first : first + size] = rng.choice((b"", bytes(size), rng.randbytes(size), b"\xff" * size))
            words = f"other bytes stand at {first}"
        case _:
            content[first:first] = rng.randbytes(rng.choice((1, 8, 100)))
            words = f"more bytes stand at {first}"
    path.write_bytes(content)
    return words


def _file(path: Path, rng: random.Random) -> str:
    way = rng.choice(("gone", "empty", "a folder", "a link to nothing", "a link to itself"))
    path.unlink()
    if way == "empty":
        path.touch()
    elif way == "a folder":
        path.mkdir()
    elif way != "gone":
        path.symlink_to(path.name if way == "a link to itself" else "nothing")
    return f"it is {way}"


def _header(path: Path, rng: random.Random) -> str:
    """Damages the header of a safetensors file, whose length is put right unless that is what is damaged."""
    content = path.read_bytes()
    data_start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    if rng.random() < 0.15:  # noqa: PLR2004
        length = rng.choice((*_ODD_LENGTHS, data_start - _LENGTH_BYTES - 1, data_start - _LENGTH_BYTES + 1))
        path.write_bytes(length.to_bytes(_LENGTH_BYTES, "little") + content[_LENGTH_BYTES:])
        return f"its header has {length} bytes by its own word"
    text = content[_LENGTH_BYTES:data_start].decode()
    if rng.random() < 0.4:  # noqa: PLR2004
        text, words = damaged_json(text, rng)
    else:
        header = json.loads(text)
        words = _lie(header, rng)
        text = json.dumps(header)
    encoded = text.encode("utf-8", "surrogatepass")
    path.write_bytes(len(encoded).to_bytes(_LENGTH_BYTES, "little") + encoded + content[data_start:])
    return f"in its header, {words}"


def _lie(header: dict[str, Any], rng: random.Random) -> str:
    names = [name for name in header if name != "__metadata__"]
    if not names:  # a shard may be empty
        header["model.norm.weight"] = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
        return "a weight stands where none is"
    name, other = rng.choice(names), rng.choice(names)
    entry = header[name]
    match rng.randrange(6):
        case 0:
            entry["shape"] = rng.choice((*_ODD_SHAPES, entry["shape"][::-1], [*entry["shape"], 1]))
        case 1:
            entry["dtype"] = rng.choice(_ODD_DTYPES)
        case 2:
            entry["data_offsets"] = header[other]["data_offsets"]
        case 3:
            first, last = entry["data_offsets"]
            entry["data_offsets"] = [rng.choice((*_ODD_OFFSETS, first)), rng.choice((*_ODD_OFFSETS, last, last + 4))]
        case 4:
            header[f"{name}{rng.choice(('', ' ', '.1', chr(0)))}x"] = header.pop(name)
        case _:
            header[name], header[other] = header[other], entry
    return f"{name} has {header.get(name)}"


def _archive(path: Path, rng: random.Random) -> str:
    """Damages a member of a file of `torch.save`, or how it is packed."""
    with zipfile.ZipFile(path) as archive:
        content_by_name = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    name = rng.choice((next(iter(content_by_name)), *content_by_name))  # the first has the names and shapes
    compression = zipfile.ZIP_STORED
    match rng.randrange(5):
        case 0:
            del content_by_name[name]
            words = f"{name} is gone"
        case 1:
            compression = zipfile.ZIP_DEFLATED
            words = "it is packed"
        case 2:
            content_by_name[name] = content_by_name[name][: rng.randrange(len(content_by_name[name]) + 1)]
            words = f"{name} is cut"
        case _:
            changed = bytearray(content_by_name[name] or b"\0")
            for _ in range(rng.choice((1, 1, 3))):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            content_by_name[name] = bytes(changed)
            words = f"{name} has other bytes"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, member_content in content_by_name.items():
            archive.writestr(member, member_content)
    return words

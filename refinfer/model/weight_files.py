"""Which files hold a checkpoint's weights: one file or shards behind an index, as safetensors or of torch.save."""

from collections.abc import Callable
from pathlib import Path

from refinfer.config.json_file import read_json_object
from refinfer.errors import CheckpointError
from refinfer.model.safetensors_file import SafetensorsFile, StoredWeight
from refinfer.model.torch_file import open_torch_file

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TORCH_FILE = "pytorch_model.bin"
TORCH_INDEX_FILE = "pytorch_model.bin.index.json"

_OTHER_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt")
"""Weights under names that say nothing about what they hold."""

_Opener = Callable[[Path], tuple[StoredWeight, ...]]


def find_weights(folder: Path) -> dict[str, StoredWeight]:
    """Finds every weight of a checkpoint folder, by name.

    Safetensors files count before those of `torch.save`, and a single file before an index, as with the reference.
    An index says which files there are; what they hold counts, whatever else it names.

    Raises:
        CheckpointError: There is no file with weights, one is broken or absent, the index names
            a file outside the folder, or a weight lies in two files.
    """
    if (folder / SINGLE_FILE).exists():
        return _by_name(_open_safetensors(folder / SINGLE_FILE))
    if (folder / INDEX_FILE).exists():
        return _find_sharded(folder / INDEX_FILE, _open_safetensors)
    if (folder / TORCH_FILE).exists():
        return _by_name(open_torch_file(folder / TORCH_FILE))
    if (folder / TORCH_INDEX_FILE).exists():
        return _find_sharded(folder / TORCH_INDEX_FILE, open_torch_file)
    expected = f"{SINGLE_FILE}, {INDEX_FILE}, {TORCH_FILE} nor {TORCH_INDEX_FILE}"
    others = sorted(path.name for pattern in _OTHER_PATTERNS for path in folder.glob(pattern))
    if others:
        message = (
            f"{folder} holds neither {expected}, only {', '.join(others)}; "
            f"if that is a state dict with Hugging Face's names, save it as {SINGLE_FILE}"
        )
        raise CheckpointError(message, folder=folder, others=others)
    message = f"{folder} holds neither {expected}; copy or download the weights"
    raise CheckpointError(message, folder=folder)


def _open_safetensors(path: Path) -> tuple[StoredWeight, ...]:
    return SafetensorsFile.open(path).weights


def _by_name(weights: tuple[StoredWeight, ...]) -> dict[str, StoredWeight]:
    return {weight.name: weight for weight in weights}


def _find_sharded(index_path: Path, open_file: _Opener) -> dict[str, StoredWeight]:
    shard_by_name = read_json_object(index_path).get("weight_map")
    if not isinstance(shard_by_name, dict) or not shard_by_name:
        message = f"{index_path} has no weight_map with a file for each weight; save the index again"
        raise CheckpointError(message, path=index_path)
    weight_by_name: dict[str, StoredWeight] = {}
    for shard in sorted(set(map(str, shard_by_name.values()))):
        if Path(shard).name != shard or shard in ("", ".", "..") or not shard.isprintable():
            message = (
                f"{index_path} names the file {shard!r}, which lies outside {index_path.parent}; "
                "only plain names are read"
            )
            raise CheckpointError(message, path=index_path, shard=shard)
        for weight in open_file(index_path.parent / shard):
            if weight.name in weight_by_name:
                other = weight_by_name[weight.name].path.name
                message = f"weight {weight.name} lies in {other} and in {shard}; keep one of them"
                raise CheckpointError(message, name=weight.name, shards=(other, shard))
            weight_by_name[weight.name] = weight
    return weight_by_name

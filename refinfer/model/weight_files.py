"""Which files hold a checkpoint's weights: a single safetensors file, or shards behind an index."""

from pathlib import Path

from refinfer.config.json_file import read_json_object
from refinfer.errors import CheckpointError, MissingWeightError
from refinfer.model.safetensors_file import SafetensorsFile, StoredWeight

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def find_weights(folder: Path) -> dict[str, StoredWeight]:
    """Finds every weight of a checkpoint folder, by name.

    A single file counts before an index, as with the reference.

    Raises:
        CheckpointError: There is no safetensors file, a file is broken or absent, the index names
            a file outside the folder, or a weight lies in two files.
        MissingWeightError: A weight is not in the file that the index names.
    """
    if (folder / SINGLE_FILE).exists():
        return {weight.name: weight for weight in SafetensorsFile.open(folder / SINGLE_FILE).weights}
    if (folder / INDEX_FILE).exists():
        return _find_sharded(folder)
    pickles = sorted(path.name for pattern in _PICKLE_PATTERNS for path in folder.glob(pattern))
    if pickles:
        message = (
            f"{folder} holds weights as {', '.join(pickles)} only; reading those would run code from the file, "
            f"so save the model as safetensors first"
        )
        raise CheckpointError(message, folder=folder, pickles=pickles)
    message = f"{folder} holds neither {SINGLE_FILE} nor {INDEX_FILE}; copy or download the weights"
    raise CheckpointError(message, folder=folder)


def _find_sharded(folder: Path) -> dict[str, StoredWeight]:
    index_path = folder / INDEX_FILE
    shard_by_name = read_json_object(index_path).get("weight_map")
    if not isinstance(shard_by_name, dict) or not shard_by_name:
        message = f"{index_path} has no weight_map with a file for each weight; save the index again"
        raise CheckpointError(message, path=index_path)
    weight_by_name: dict[str, StoredWeight] = {}
    for shard in sorted(set(map(str, shard_by_name.values()))):
        if Path(shard).name != shard or shard in ("", ".", ".."):
            message = f"{index_path} names the file {shard!r}, which lies outside {folder}; only plain names are read"
            raise CheckpointError(message, path=index_path, shard=shard)
        for weight in SafetensorsFile.open(folder / shard).weights:
            if weight.name in weight_by_name:
                other = weight_by_name[weight.name].path.name
                message = f"weight {weight.name} lies in {other} and in {shard}; keep one of them"
                raise CheckpointError(message, name=weight.name, shards=(other, shard))
            weight_by_name[weight.name] = weight
    for name, shard in shard_by_name.items():
        if name not in weight_by_name or weight_by_name[name].path.name != shard:
            message = f"{index_path} says that {name} lies in {shard}, but it does not; save the checkpoint again"
            raise MissingWeightError(message, path=index_path, name=name, shard=shard)
    return weight_by_name

"""Generated checkpoints: tiny random Llama models from a spec, written once and read by every side."""

import os
import tempfile
from functools import partial
from pathlib import Path

from oracle.checkpoint_files import INDEX_FILE, weight_file_names, write_json, write_weights
from oracle.checkpoint_spec import CheckpointSpec, llama_3_2_1b_spec
from oracle.checkpoint_weights import make_weights, weight_blocks, weight_shapes
from oracle.tiny_tokenizer import write_tokenizer

__all__ = [
    "CheckpointSpec",
    "cached_checkpoint",
    "default_cache_root",
    "llama_3_2_1b_spec",
    "make_weights",
    "write_checkpoint",
]

CONFIG_FILE = "config.json"
GENERATION_CONFIG_FILE = "generation_config.json"


def write_checkpoint(spec: CheckpointSpec, folder: Path) -> Path:
    """Writes a checkpoint: configuration, weights and, if the spec says so, a tokenizer.

    The weights are written block by block, so that one larger than the memory can be made.

    Args:
        spec: What is written.
        folder: Where; it is made if need be, and files of the same names are replaced.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CONFIG_FILE, spec.raw_config())
    if spec.eos_token_ids:
        first, *others = spec.eos_token_ids  # one alone stands there by itself, as in files that are published
        write_json(folder / GENERATION_CONFIG_FILE, {"eos_token_id": [first, *others] if others else first})
    if spec.with_tokenizer:
        write_tokenizer(folder, spec.vocab_size)
    write_weights(
        folder, weight_shapes(spec), partial(weight_blocks, spec), dtype=spec.dtype, num_shards=spec.num_shards
    )
    return folder


def default_cache_root() -> Path:
    """Gives the folder for generated checkpoints: one for each user, among the temporary files."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"oracle-checkpoints-{user}"


def cached_checkpoint(spec: CheckpointSpec, root: Path | None = None) -> Path:
    """Gives the folder of a checkpoint, which is written the first time.

    Processes may ask for the same one at once: each writes to a folder of its own, and the first to be
    ready names it; so a folder with the final name is complete.
    A folder from which a cleaner of temporary files has taken some is written again.

    Args:
        spec: The checkpoint.
        root: Folder for all of them; `default_cache_root` unless given.

    Returns:
        A folder that belongs to everybody, so nothing in it may be changed.
    """
    root = default_cache_root() if root is None else root
    folder = root / spec.digest
    if _is_complete(spec, folder):
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=root, ignore_cleanup_errors=True) as name:
        unfinished = write_checkpoint(spec, Path(name) / spec.digest)
        try:
            unfinished.rename(folder)
        except OSError:  # another process was first, or a cleaner left the folder
            if not _is_complete(spec, folder):
                _replace_files(unfinished, folder)
    return folder


def _is_complete(spec: CheckpointSpec, folder: Path) -> bool:
    names = [CONFIG_FILE, *weight_file_names(spec.num_shards)]
    if spec.num_shards > 1:
        names.append(INDEX_FILE)
    if spec.eos_token_ids:
        names.append(GENERATION_CONFIG_FILE)
    if spec.with_tokenizer:
        names += ["tokenizer.json", "tokenizer_config.json"]
    return all((folder / name).exists() for name in names)


def _replace_files(source: Path, target: Path) -> None:
    """Puts files over those of a folder that exists; each has the same bytes as the one it replaces."""
    for path in source.iterdir():
        path.replace(target / path.name)

"""What a fetched model consists of, written beside it, so that damage is seen."""

import hashlib
import json
from pathlib import Path

from refinfer.config.json_file import read_json_object
from refinfer.errors import CheckpointError
from refinfer.hub.known_models import KnownModel

MANIFEST_FILE = "refinfer-manifest.json"

_FORMAT = 1
"""Rises when the conversion would write other files, so that older copies are made anew."""


def write_manifest(folder: Path, model: KnownModel) -> None:
    """Records the size and the hash of each file in a folder, and the wheel that they were made from."""
    paths = sorted(path for path in folder.iterdir() if path.name != MANIFEST_FILE)
    manifest = {
        "format": _FORMAT,
        "wheel_sha256": model.wheel_sha256,
        "files": {path.name: {"size": path.stat().st_size, "sha256": sha256_of(path)} for path in paths},
    }
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def find_damage(folder: Path, model: KnownModel, *, with_hashes: bool) -> str | None:
    """Says in a few words why a folder is not the fetched model, or gives None if it is.

    Args:
        folder: Where the model should be.
        model: What it should be.
        with_hashes: Read every file through and compare hashes; else only names and sizes are compared.
    """
    if not folder.is_dir():
        return "it has not been fetched"
    try:
        manifest = read_json_object(folder / MANIFEST_FILE)
    except CheckpointError:
        return f"{MANIFEST_FILE} is missing or unreadable"
    if manifest.get("format") != _FORMAT or manifest.get("wheel_sha256") != model.wheel_sha256:
        return "it was made by another version"
    damages = (
        _file_damage(folder / name, **recorded, with_hash=with_hashes) for name, recorded in manifest["files"].items()
    )
    return next((damage for damage in damages if damage), None)


def _file_damage(path: Path, *, size: int, sha256: str, with_hash: bool) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    num_bytes = path.stat().st_size
    if num_bytes != size:
        return f"{path.name} has {num_bytes} bytes instead of {size}"
    if with_hash and sha256_of(path) != sha256:
        return f"{path.name} does not have the recorded hash"
    return None


def sha256_of(path: Path) -> str:
    """Gives the SHA-256 of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

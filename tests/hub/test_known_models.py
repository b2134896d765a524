"""Models by name, and where they are kept."""

import re
from pathlib import Path

import pytest

from refinfer.errors import ConfigError
from refinfer.hub.known_models import CACHE_VARIABLE, KNOWN_MODELS, known_model, model_folder


def test_known_model_refuses_another_name():
    with pytest.raises(ConfigError, match="no model is known as 'smollm3'; smollm2 can be fetched"):
        known_model("smollm3")


@pytest.mark.parametrize("model", KNOWN_MODELS.values(), ids=KNOWN_MODELS)
def test_known_model_is_pinned(model):
    """An exact version, and the hash of one file."""
    assert known_model(model.name) is model
    assert re.fullmatch(r"[\w-]+==[\d.]+", model.requirement)
    assert re.fullmatch(r"[0-9a-f]{64}", model.wheel_sha256)


def test_model_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert model_folder(known_model("smollm2")) == tmp_path / "models" / "smollm2"


@pytest.mark.parametrize("value", [None, ""])
def test_model_folder_is_the_users_cache_otherwise(value, monkeypatch):
    if value is None:
        monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(CACHE_VARIABLE, value)
    folder = model_folder(known_model("smollm2"))
    assert folder.is_absolute()
    assert "refinfer" in folder.parts
    assert folder.parts[-2:] == Path("models/smollm2").parts

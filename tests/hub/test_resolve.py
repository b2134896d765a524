"""A word for a model becomes a folder, or an error that says what it could have been."""

import re
from pathlib import Path

import pytest
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from refinfer.errors import CheckpointError, ConfigError
from refinfer.hub import resolve, resolve_model
from refinfer.hub.known_models import model_folder
from refinfer.hub.manifest import write_manifest


@pytest.fixture
def hub(monkeypatch):
    """Stands in for the hub's client: records what is asked for, and gives or raises what is set."""

    class Hub:
        answer = "/snapshot"
        asked = None

        def __init__(self):
            self.patterns = []

        def download(self, hub_id, **patterns):
            self.asked = hub_id
            self.patterns.append(patterns)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    hub = Hub()
    monkeypatch.setattr(resolve, "snapshot_download", hub.download)
    return hub


def bare(kind, text="refused"):
    """An error of the hub's client without the answer of a server that it wants."""
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error


@pytest.mark.parametrize("kind", [str, Path])
def test_resolve_model_gives_a_folder_back(tmp_path, kind):
    assert resolve_model(kind(tmp_path)) == tmp_path


@pytest.mark.usefixtures("model")
def test_resolve_model_takes_a_folder_before_a_name(tmp_path, monkeypatch):
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("tiny") == Path("tiny")


def test_resolve_model_knows_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "checkpoint").mkdir()
    assert resolve_model("~/checkpoint") == tmp_path / "checkpoint"


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./nothing", "~/no-such-folder", Path("owner/name")])
def test_resolve_model_refuses_a_folder_that_is_not_there(name, hub):
    with pytest.raises(CheckpointError, match=r"is not a folder; give the folder that holds config\.json"):
        resolve_model(name)
    assert hub.asked is None


def test_resolve_model_gives_a_fetched_model(model):
    folder = model_folder(model)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    write_manifest(folder, model)
    assert resolve_model("tiny") == folder
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json is missing; run `python -m refinfer fetch tiny`"):
        resolve_model("tiny")


@pytest.mark.usefixtures("model")
def test_resolve_model_says_how_to_fetch():
    with pytest.raises(CheckpointError, match="it has not been fetched; run `python -m refinfer fetch tiny`"):
        resolve_model("tiny")


@pytest.mark.parametrize("name", ["nonsense", "a/b/c", "", "owner/", "a b/c", "owner\\name"])
def test_resolve_model_names_every_possibility(name, hub):
    message = f"model {name!r} is neither a folder here, nor one that can be fetched (smollm2), nor a hub id"
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve_model(name)
    assert hub.asked is None


def test_resolve_model_asks_the_hub_for_what_is_needed_only(hub, tmp_path):
    (tmp_path / "model.safetensors").touch()
    hub.answer = str(tmp_path)
    assert resolve_model("owner/name-1.0_x") == tmp_path
    assert hub.asked == "owner/name-1.0_x"
    (patterns,) = hub.patterns
    assert {"*.json", "*.safetensors"} <= set(patterns["allow_patterns"])
    assert not any("bin" in pattern or "*.py" in pattern for pattern in patterns["allow_patterns"])
    assert "*/*" in patterns["ignore_patterns"]


def test_resolve_model_asks_the_hub_for_other_weights_where_there_are_no_safetensors(hub):
    assert resolve_model("owner/name") == Path("/snapshot")
    first, second = hub.patterns
    assert "*.safetensors" in first["allow_patterns"]
    assert second["allow_patterns"] == ["pytorch_model*.bin"]
    assert "*/*" in second["ignore_patterns"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (bare(GatedRepoError), "owner/name is gated; accept its terms on its page, run `hf auth login`"),
        (bare(RepositoryNotFoundError), "owner/name is neither a folder here nor a model on the hub that you may see"),
        (ConnectionError("no route.\nmore"), "the hub did not give it: no route; check the network"),
        (RuntimeError(), "the hub did not give it: RuntimeError; check the network"),
    ],
)
def test_resolve_model_says_why_the_hub_did_not_give_it(hub, error, message):
    hub.answer = error
    with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
        resolve_model("owner/name")
    assert caught.value.__cause__ is error


def test_resolve_model_says_so_without_a_network():
    """Tests run with the hub switched off."""
    with pytest.raises(CheckpointError, match=r"owner/name is no folder here, and the hub did not give it: .*; check"):
        resolve_model("owner/name")

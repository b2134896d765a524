"""A user's word for an engine means one adapter, and words that mean none are refused with the way out."""

import sys

import pytest

from oracle.engines import registry
from oracle.engines.adapters.openai_compatible import OpenAiCompatibleAdapter
from oracle.engines.environments import environment_folder, environment_python, write_marker
from oracle.engines.opening import open_engine
from oracle.engines.process import LAUNCHER, ProcessEngine
from oracle.engines.registry import EngineRecipe
from oracle.errors import EngineUnavailable
from refinfer.hub.known_models import CACHE_VARIABLE

ADAPTER = """\
from oracle.engines.declaration import EngineDeclaration


class Adapter:
    def declare(self):
        return EngineDeclaration(name="mine")

    def open(self, folder, knobs):
        pass

    def run(self, requests):
        raise NotImplementedError

    def close(self):
        pass
"""

APART = EngineRecipe("apart", "", "my_adapter:Adapter", requirements=("x",), environment={"TOY_THREADS": "1"})
HERE = EngineRecipe("here", "", "my_adapter:Adapter")


@pytest.fixture
def closed_later():
    """Gives a function that hands an engine through, and lets go of all that it holds after the test."""
    engines = []

    def hand_through(engine):
        engines.append(engine)
        return engine

    yield hand_through
    for engine in engines:
        engine.close()


@pytest.fixture(autouse=True)
def _my_adapter(tmp_path, monkeypatch):
    """An adapter in the folder that the user works in, and two known engines."""
    (tmp_path / "my_adapter.py").write_text(ADAPTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "RECIPES", (APART, HERE))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield
    sys.modules.pop("my_adapter", None)


def test_name_of_an_engine_that_runs_here_is_its_adapter():
    engine = open_engine("here")
    assert type(engine).__name__ == "Adapter"
    assert engine.declare().name == "mine"


def test_name_of_an_installed_engine_is_a_process_in_its_environment(closed_later):
    python = environment_python(environment_folder(APART))
    python.parent.mkdir(parents=True)
    python.touch()
    write_marker(environment_folder(APART), APART)
    engine = closed_later(open_engine("apart", timeout=7.0))
    assert isinstance(engine, ProcessEngine)
    assert engine._command == (str(python), str(LAUNCHER), "my_adapter:Adapter")
    assert engine._environment["TOY_THREADS"] == "1"
    assert engine._timeout == 7.0


def test_name_of_an_engine_that_is_not_installed_is_refused_with_the_way_out():
    with pytest.raises(EngineUnavailable, match="run `python -m oracle engines install apart`"):
        open_engine("apart")


@pytest.mark.parametrize("text", ["apart", "here", "my_adapter:Adapter"])
def test_another_python_runs_the_adapter_in_a_process(text, closed_later):
    engine = closed_later(open_engine(text, python=sys.executable, timeout=60.0))
    assert isinstance(engine, ProcessEngine)
    assert engine.declare().name == "mine"


def test_adapter_is_loaded_in_this_process_from_where_the_user_works():
    assert open_engine("my_adapter:Adapter").declare().name == "mine"


@pytest.mark.parametrize("text", ["my_adapter:Missing", "no_such_module_here:Adapter", "my_adapter:", ":Adapter"])
def test_adapter_that_cannot_be_loaded_is_refused(text):
    with pytest.raises(EngineUnavailable, match=f"the adapter '{text}' cannot be loaded here: "):
        open_engine(text)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8000", "https://example.org/v1#model=a"])
def test_address_is_a_server(address):
    assert isinstance(open_engine(address), OpenAiCompatibleAdapter)


def test_command_starts_what_speaks_the_protocol(closed_later):
    engine = closed_later(open_engine(None, command=f"{sys.executable} '{LAUNCHER}' my_adapter:Adapter", timeout=60.0))
    assert engine.declare().name == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"text": None}, "no engine is named"),
        ({"text": ""}, "no engine is named"),
        ({"text": "unknown"}, "engine 'unknown' is unknown; known are apart, here"),
        ({"text": "here", "command": "run me"}, "leave out its name and its Python"),
        ({"text": None, "command": "run me", "python": "python"}, "leave out its name and its Python"),
        ({"text": None, "command": " "}, "is empty"),
        ({"text": "http://127.0.0.1:8000", "python": "python"}, "is a server that runs already"),
    ],
    ids=[
        "nothing",
        "empty",
        "unknown",
        "name and command",
        "python and command",
        "empty command",
        "python of a server",
    ],
)
def test_words_that_mean_no_engine_are_refused(arguments, words):
    with pytest.raises(EngineUnavailable, match=words):
        open_engine(**arguments)

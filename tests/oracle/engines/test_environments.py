"""An environment is whole only where its mark says so, and the mark is of today's recipe."""

import json
from dataclasses import replace

import pytest

from oracle.engines import registry
from oracle.engines.environments import (
    MARKER,
    EnvironmentState,
    environment_folder,
    environment_python,
    environment_state,
    log_file,
    python_of,
    recipe_digest,
    write_marker,
)
from oracle.engines.registry import EngineRecipe
from oracle.errors import EngineUnavailable
from refinfer.hub.known_models import CACHE_VARIABLE

RECIPE = EngineRecipe("toy", "a toy", "toy.adapter:Toy", requirements=("toy==1.0",))
LOCAL = EngineRecipe("local", "runs here", "local.adapter:Local")


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(registry, "RECIPES", (RECIPE, LOCAL))


@pytest.fixture
def make_whole():
    """Gives a function that makes what a whole environment of a recipe looks like."""

    def make(recipe):
        python = environment_python(environment_folder(recipe))
        python.parent.mkdir(parents=True)
        python.touch()
        write_marker(environment_folder(recipe), recipe)
        return python

    return make


def test_folder_and_log_follow_the_environment(tmp_path):
    assert environment_folder(RECIPE) == tmp_path / "engines" / "toy"
    assert log_file(RECIPE) == tmp_path / "engines" / "toy.log"


def test_python_of_gives_the_python_of_a_whole_environment(make_whole):
    python = make_whole(RECIPE)
    assert environment_state(RECIPE) is EnvironmentState.WHOLE
    assert python_of("toy") == python


def test_python_of_names_the_way_out_when_nothing_is_there():
    assert environment_state(RECIPE) is EnvironmentState.MISSING
    with pytest.raises(
        EngineUnavailable, match="engine 'toy' is not installed; run `python -m oracle engines install toy`"
    ):
        python_of("toy")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}"])
def test_environment_without_a_readable_mark_is_half_made(make_whole, text):
    make_whole(RECIPE)
    marker = environment_folder(RECIPE) / MARKER
    marker.unlink()
    if text is not None:
        marker.write_text(text)
    assert environment_state(RECIPE) is EnvironmentState.BROKEN
    with pytest.raises(EngineUnavailable, match="engine 'toy' is half made; run"):
        python_of("toy")


def test_environment_that_lost_its_python_is_not_whole(make_whole):
    make_whole(RECIPE).unlink()
    assert environment_state(RECIPE) is EnvironmentState.BROKEN


@pytest.mark.parametrize(
    "change",
    [
        {"requirements": ("toy==1.1",)},
        {"bare_requirement": "toy-core"},
        {"excluded_dependencies": ("torch",)},
        {"build_environment": {"CMAKE_ARGS": "-DX=ON"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_environment_of_another_recipe_is_told_apart(make_whole, monkeypatch, change):
    make_whole(RECIPE)
    changed = replace(RECIPE, **change)
    monkeypatch.setattr(registry, "RECIPES", (changed,))
    assert environment_state(changed) is EnvironmentState.OUTDATED
    with pytest.raises(EngineUnavailable, match="engine 'toy' is made by an older recipe; run"):
        python_of("toy")


def test_words_about_an_engine_do_not_change_the_digest():
    assert recipe_digest(replace(RECIPE, summary="other words", environment={"A": "1"})) == recipe_digest(RECIPE)


def test_mark_leaves_nothing_else_behind(tmp_path):
    write_marker(tmp_path, RECIPE)
    assert [file.name for file in tmp_path.iterdir()] == [MARKER]
    assert json.loads((tmp_path / MARKER).read_text()) == {"engine": "toy", "digest": recipe_digest(RECIPE)}


def test_python_of_refuses_an_engine_that_has_no_environment():
    with pytest.raises(EngineUnavailable, match="'local' runs in this process"):
        python_of("local")


def test_python_of_refuses_an_unknown_name():
    with pytest.raises(EngineUnavailable, match="engine 'toys' is unknown; known are toy, local"):
        python_of("toys")


def test_engine_may_run_in_the_environment_of_another(make_whole, monkeypatch):
    sharing = replace(RECIPE, name="toy-two", target="toy.adapter:Two", shared_environment="toy")
    monkeypatch.setattr(registry, "RECIPES", (RECIPE, sharing))
    assert environment_state(sharing) is EnvironmentState.MISSING
    python = make_whole(RECIPE)
    assert python_of("toy-two") == python == python_of("toy")

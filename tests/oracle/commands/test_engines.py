"""The known engines are listed with what stands where they belong, and installed by name."""

import pytest

from oracle.commands import engines
from oracle.commands.shared import EXIT_PASS, EXIT_USAGE
from oracle.engines import registry
from oracle.engines.environments import environment_folder, environment_python, write_marker
from oracle.engines.registry import EngineRecipe
from refinfer.hub.known_models import CACHE_VARIABLE

TOY = EngineRecipe("toy", "a [toy]", "toy.adapter:Toy", requirements=("toy==1.0",))
LOCAL = EngineRecipe("local", "runs beside", "local.adapter:Local")


@pytest.fixture(autouse=True)
def _recipes(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "RECIPES", (TOY, LOCAL))
    monkeypatch.setattr(engines, "RECIPES", (TOY, LOCAL))


@pytest.mark.parametrize("arguments", [(), ("list",)], ids=["by default", "asked for"])
def test_list_says_of_each_engine_where_it_runs_and_whether_it_is_there(run, arguments):
    status, output, _ = run("engines", *arguments)
    assert status == EXIT_PASS
    heading, toy, local, *others = output.splitlines()
    assert heading.split() == ["name", "what", "it", "is", "where", "it", "runs"]
    assert [part.strip() for part in toy.split("  ") if part.strip()] == [
        "toy",
        "a [toy]",
        "own process",
        "not installed",
    ]
    assert [part.strip() for part in local.split("  ") if part.strip()] == [
        "local",
        "runs beside",
        "this process",
        "nothing to install",
    ]
    assert "MODULE:ATTRIBUTE" in " ".join(others)
    assert "http://HOST:PORT" in " ".join(others)


def test_list_sees_an_environment_that_is_whole(run):
    python = environment_python(environment_folder(TOY))
    python.parent.mkdir(parents=True)
    python.touch()
    write_marker(environment_folder(TOY), TOY)
    _, output, _ = run("engines", "list")
    assert output.splitlines()[1].rstrip().endswith("  installed")


def test_install_installs_the_engine_that_is_named(run, monkeypatch):
    installed = []
    monkeypatch.setattr(engines, "install_engine", lambda recipe, console: installed.append((recipe.name, console)))
    status, _, _ = run("engines", "install", "toy")
    assert status == EXIT_PASS
    assert [name for name, _ in installed] == ["toy"]


def test_install_refuses_an_unknown_name(run):
    status, _, errors = run("engines", "install", "toys")
    assert status == EXIT_USAGE
    assert "engine 'toys' is unknown; known are toy, local" in errors


def test_install_refuses_an_engine_that_runs_here(run):
    status, _, errors = run("engines", "install", "local")
    assert status == EXIT_USAGE
    assert "there is nothing to install" in errors

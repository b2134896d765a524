"""The known engines: each can be found, and what is shared is shared by recipes that agree."""

import ast
from pathlib import Path

import pytest

import oracle
from oracle.engines.environments import recipe_digest
from oracle.engines.registry import RECIPES, find_recipe
from oracle.errors import EngineUnavailable


def test_names_are_taken_once():
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_recipe_is_found_by_its_name(recipe):
    assert find_recipe(recipe.name) is recipe
    assert recipe.target.count(":") == 1


def names_at_the_top(path):
    """What a module has, read without importing it: most engines are not installed here."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                names.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_target_of_a_recipe_is_there(recipe):
    module, attribute = recipe.target.split(":")
    path = Path(oracle.__file__).parent.parent / (module.replace(".", "/") + ".py")
    assert attribute in names_at_the_top(path)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_environment_is_shared_only_between_equal_recipes(recipe):
    assert recipe_digest(find_recipe(recipe.environment_name)) == recipe_digest(recipe)
    assert find_recipe(recipe.environment_name).shared_environment is None


def test_find_recipe_refuses_an_unknown_name():
    with pytest.raises(EngineUnavailable, match="engine 'nothing' is unknown; known are "):
        find_recipe("nothing")

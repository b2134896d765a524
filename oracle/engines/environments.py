"""Where is an engine's own environment, and is it whole?"""

import hashlib
import json
import sysconfig
from enum import StrEnum
from pathlib import Path

from oracle.engines.registry import EngineRecipe, find_recipe
from oracle.errors import EngineUnavailable
from refinfer.hub.known_models import cache_folder

MARKER = "oracle-engine.json"
"""Written into an environment last; one without it is half made."""


class EnvironmentState(StrEnum):
    """What stands where an engine's environment belongs; the value is how users are told."""

    WHOLE = "installed"
    MISSING = "not installed"
    BROKEN = "half made"
    OUTDATED = "made by an older recipe"


def environment_folder(recipe: EngineRecipe) -> Path:
    """Gives the folder of an engine's environment, whether or not it is there."""
    return cache_folder() / "engines" / recipe.environment_name


def log_file(recipe: EngineRecipe) -> Path:
    """Gives the file that keeps what was said when an engine's environment was made last."""
    return cache_folder() / "engines" / f"{recipe.environment_name}.log"


def environment_python(folder: Path) -> Path:
    """Gives the Python of an environment, whether or not it is there."""
    scripts = sysconfig.get_path("scripts", "venv", vars={"base": str(folder)})
    return Path(scripts) / f"python{sysconfig.get_config_var('EXE') or ''}"


def recipe_digest(recipe: EngineRecipe) -> str:
    """Gives a digest of all in a recipe that decides what an environment holds."""
    parts = [
        recipe.requirements,
        recipe.bare_requirement,
        sorted(recipe.excluded_dependencies),
        sorted(recipe.build_environment.items()),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def write_marker(folder: Path, recipe: EngineRecipe) -> None:
    """Says of an environment that it is whole; the file appears at once."""
    text = json.dumps({"engine": recipe.environment_name, "digest": recipe_digest(recipe)})
    written = folder / f"{MARKER}.partial"
    written.write_text(text, encoding="utf-8")
    written.replace(folder / MARKER)


def environment_state(recipe: EngineRecipe) -> EnvironmentState:
    """Looks at what stands where an engine's environment belongs."""
    folder = environment_folder(recipe)
    if not folder.exists():
        return EnvironmentState.MISSING
    digest = _marked_digest(folder)
    if digest is None or not environment_python(folder).exists():
        return EnvironmentState.BROKEN
    return EnvironmentState.WHOLE if digest == recipe_digest(recipe) else EnvironmentState.OUTDATED


def python_of(name: str) -> Path:
    """Gives the Python in whose environment a known engine is installed.

    Raises:
        EngineUnavailable: The engine is unknown, or runs in this process and has none of its own, or what should
            be its environment is missing, half made, or made by another recipe than today's.
    """
    recipe = find_recipe(name)
    if recipe.runs_here:
        message = f"engine {name!r} runs in this process, and has no environment of its own"
        raise EngineUnavailable(message, name=name)
    state = environment_state(recipe)
    if state is not EnvironmentState.WHOLE:
        message = f"engine {name!r} is {state}; run `python -m oracle engines install {name}`"
        raise EngineUnavailable(message, name=name, state=state)
    return environment_python(environment_folder(recipe))


def _marked_digest(folder: Path) -> str | None:
    try:
        digest = json.loads((folder / MARKER).read_text(encoding="utf-8"))["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(digest)

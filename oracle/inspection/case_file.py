"""Which case does somebody mean? A file's path, or the line of a failure that names it."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from oracle.contract.scenario import EngineScenario
from oracle.errors import ScenarioError
from oracle.scenario import Scenario
from refinfer.hub import resolve_model

_COMMAND = "oracle replay "
_PATH = re.compile(r"(.*?\.json)(?=\s|$)")


class CaseFile(NamedTuple):
    """A case that was named.

    Attributes:
        path: Its file.
        scenario: What it holds.
        folder: The checkpoint, for a case that generates none.
    """

    path: Path
    scenario: Scenario
    folder: Path | None


def named_in(text: str) -> tuple[Path, str | None]:
    """Finds the path of a case, and the model beside it, in a path or in a line with `python -m oracle replay PATH`.

    Raises:
        ScenarioError: No path stands in it.
    """
    _, command, rest = text.partition(_COMMAND)
    rest = rest.strip()
    if not command:
        return Path(text), None
    words = _words(rest)
    found = None if rest[:1] in ("'", '"') else _PATH.match(rest)  # `check` prints paths as they are, blanks and all
    path = found[1] if found else next((word for word in words if not word.startswith("-")), None)
    if not path:
        message = f"{text!r} names no case behind `oracle replay`; give the path of a saved case"
        raise ScenarioError(message, text=text)
    model = words[words.index("--model") + 1] if "--model" in words[:-1] else None
    return Path(path), model


def load_case(text: str, model: str | None = None) -> CaseFile:
    """Reads the case that a path or a line names.

    Args:
        text: The path, or the line.
        model: The checkpoint's folder or name, for a case that generates none; what the line names counts less.

    Raises:
        ScenarioError: It cannot be read, is one of another engine, or does not fit the model.
    """
    path, named = named_in(text)
    if path.is_file() and EngineScenario.is_in(path):
        engine = EngineScenario.load(path).engine
        message = (
            f"{path} was found on {engine}, an engine in the dock, whose steps cannot be watched from here; "
            f"`python -m oracle replay {path} --engine NAME --explain` asks what can be asked"
        )
        raise ScenarioError(message, path=path, engine=engine)
    scenario = Scenario.load(path)
    model = model or named
    if model is not None and (scenario.checkpoint is not None or scenario.is_symbolic):
        message = f"{path} runs on a model of its own; leave --model {model} away"
        raise ScenarioError(message, model=model)
    if model is None and scenario.checkpoint is None and not scenario.is_symbolic:
        message = f"{path} generates no checkpoint; name the one that it ran on with --model"
        raise ScenarioError(message, path=path)
    return CaseFile(path, scenario, None if model is None else resolve_model(model))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark that is never closed
        return text.split()

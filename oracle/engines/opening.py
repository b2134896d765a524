"""What does a user's word for an engine mean: a name, an adapter of their own, or the address of a server?"""

import os
import shlex
import sys
from pathlib import Path

from oracle.engines.adapter import EngineAdapter
from oracle.engines.adapters.openai_compatible import OpenAiCompatibleAdapter
from oracle.engines.environments import python_of
from oracle.engines.process import ProcessEngine
from oracle.engines.registry import find_recipe
from oracle.engines.serve import load_adapter
from oracle.errors import EngineUnavailable

ADDRESSES = ("http://", "https://")


def open_engine(
    text: str | None, *, python: str | None = None, command: str | None = None, timeout: float = 300.0
) -> EngineAdapter:
    """Gives the adapter of an engine; nothing is opened in it yet.

    Args:
        text: The name of a known engine, or an adapter as MODULE:ATTRIBUTE, or the address of a server that speaks
            OpenAI's protocol, `http://HOST:PORT`; None where a command stands for it.
        python: The Python in whose environment the engine is installed; None for the one made for a known engine,
            and for this process where an adapter is named.
        command: What starts a process that speaks the protocol over its pipes, split as a shell does.
        timeout: Seconds within which an engine in a process of its own must answer each message.

    Raises:
        EngineUnavailable: There is no such engine, it is not installed, or the words contradict each other.
    """
    if command is not None:
        return _of_command(command, text=text, python=python, timeout=timeout)
    if not text:
        message = "no engine is named; give a name, MODULE:ATTRIBUTE, an address or a command"
        raise EngineUnavailable(message)
    if text.startswith(ADDRESSES):
        return _of_address(text, python=python, timeout=timeout)
    if ":" in text:
        return _of_target(text, python=python, timeout=timeout)
    return _of_name(text, python=python, timeout=timeout)


def _of_command(command: str, *, text: str | None, python: str | None, timeout: float) -> EngineAdapter:
    if text is not None or python is not None:
        message = f"the command {command!r} says all about its engine; leave out its name and its Python"
        raise EngineUnavailable(message, command=command)
    words = shlex.split(command, posix=os.name != "nt")
    if not words:
        message = "the command that should start an engine is empty"
        raise EngineUnavailable(message, command=command)
    return ProcessEngine(words, timeout=timeout)


def _of_address(address: str, *, python: str | None, timeout: float) -> EngineAdapter:
    if python is not None:
        message = f"{address} is a server that runs already; leave out the Python {python!r}"
        raise EngineUnavailable(message, address=address, python=python)
    return OpenAiCompatibleAdapter(address, timeout=timeout)


def _of_target(target: str, *, python: str | None, timeout: float) -> EngineAdapter:
    if python is not None:
        return ProcessEngine.of_python(target, python, timeout=timeout)
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))  # as `launch.py` does it: users' adapters lie where they work
    try:
        return load_adapter(target)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        message = f"the adapter {target!r} cannot be loaded here: {type(error).__name__}: {error}"
        raise EngineUnavailable(message, target=target) from error


def _of_name(name: str, *, python: str | None, timeout: float) -> EngineAdapter:
    recipe = find_recipe(name)
    if python is None and recipe.runs_here:
        return _of_target(recipe.target, python=None, timeout=timeout)
    own_python = python or str(python_of(name))
    return ProcessEngine.of_python(recipe.target, own_python, timeout=timeout, environment=recipe.environment)

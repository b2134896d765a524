"""How is an environment for an engine made, by its recipe?"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from oracle.engines.environments import (
    EnvironmentState,
    environment_folder,
    environment_python,
    environment_state,
    log_file,
    write_marker,
)
from oracle.engines.registry import EngineRecipe
from oracle.errors import EngineUnavailable

PIP = ("-I", "-m", "pip", "--no-input", "--disable-pip-version-check", "install")
"""Isolated, so that packages on `PYTHONPATH` are not taken for installed ones."""

READ_DEPENDENCIES = (
    "import importlib.metadata, json, sys; print(json.dumps(importlib.metadata.requires(sys.argv[1]) or []))"
)
"""Run by the environment's own Python, with the name of a package that is installed there."""

_DISTRIBUTION = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")

_SECONDS_BETWEEN_LOOKS = 0.5
"""How often the log is looked at for what is happening; pip may say nothing for minutes while it compiles."""

_LINE_SHOWN = 70


def install_engine(
    recipe: EngineRecipe, *, console: Console | None = None, python: str | Path = sys.executable
) -> Path:
    """Makes the environment of an engine, unless it is there and whole.

    What is interrupted is never taken for whole: a file that marks it is written last. What was half made, or
    made by another recipe, is made anew.

    Args:
        recipe: Of the engine.
        console: Where progress is shown; None shows nothing.
        python: What makes the environment, and becomes its Python.

    Returns:
        The environment's Python.

    Raises:
        EngineUnavailable: The engine needs none, or the environment could not be made; the message names the log.
    """
    if recipe.runs_here:
        message = f"engine {recipe.name!r} runs in this process; there is nothing to install"
        raise EngineUnavailable(message, name=recipe.name)
    folder, log_path = environment_folder(recipe), log_file(recipe)
    shown = Console(quiet=True) if console is None else console
    state = environment_state(recipe)
    if state is EnvironmentState.WHOLE:
        _say(shown, f"{recipe.name} is already installed in {folder}")
        return environment_python(folder)
    if state is not EnvironmentState.MISSING:
        _say(shown, f"the environment in {folder} is {state}; making it anew")
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("wb") as log:
            _Installation(recipe, folder, log, log_path, shown).make(python)
        write_marker(folder, recipe)
    except OSError as error:
        message = f"{recipe.name} could not be installed in {folder}: {error}"
        raise EngineUnavailable(message, name=recipe.name, folder=folder) from error
    _say(shown, f"{recipe.name} is installed in {folder}")
    return environment_python(folder)


def distribution_name(requirement: str) -> str:
    """Gives the normalised name of the package that a requirement asks for.

    Raises:
        EngineUnavailable: It begins with no name.
    """
    found = _DISTRIBUTION.match(requirement)
    if found is None:
        message = f"requirement {requirement!r} begins with no name of a package"
        raise EngineUnavailable(message, requirement=requirement)
    return re.sub(r"[-_.]+", "-", found[1]).lower()


def wanted_dependencies(dependencies: Sequence[str], excluded: Sequence[str]) -> tuple[str, ...]:
    """Leaves packages out; markers stay, since pip itself leaves out what is for others or for extras."""
    names = {distribution_name(name) for name in excluded}
    return tuple(dependency for dependency in dependencies if distribution_name(dependency) not in names)


@dataclass
class _Installation:
    """One environment that is being made."""

    recipe: EngineRecipe
    folder: Path
    log: IO[bytes]
    log_path: Path
    console: Console

    def make(self, python: str | Path) -> None:
        """Makes all of it but for the mark that it is whole."""
        own_python = str(environment_python(self.folder))
        self._run("making an environment", [str(python), "-I", "-m", "venv", "--clear", str(self.folder)])
        if self.recipe.requirements:
            what = f"installing {', '.join(self.recipe.requirements)}"
            self._run(what, [own_python, *PIP, *self.recipe.requirements])
        bare = self.recipe.bare_requirement
        if bare is None:
            return
        self._run(f"installing {bare} by itself", [own_python, *PIP, "--no-deps", bare])
        dependencies = wanted_dependencies(self._dependencies(own_python, bare), self.recipe.excluded_dependencies)
        if dependencies:
            self._run(f"installing what {bare} needs", [own_python, *PIP, *dependencies])

    def _run(self, what: str, command: Sequence[str]) -> None:
        """Runs one command, whose words go to the log.

        Raises:
            EngineUnavailable: It failed.
        """
        _say(self.console, what)
        self.log.write(f"$ {shlex.join(command)}\n".encode())
        self.log.flush()
        variables = {**os.environ, **self.recipe.build_environment}
        process = subprocess.Popen(  # noqa: S603 - Python and pip, as the recipe has them
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, env=variables
        )
        try:
            self._wait(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            message = (
                f"{self.recipe.name} could not be installed: {what} ended with status {process.returncode}, "
                f"and {_last_line(self.log_path)!r} was said last; all of it is in {self.log_path}"
            )
            raise EngineUnavailable(message, name=self.recipe.name, log_path=self.log_path)

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=True) as progress:
            task = progress.add_task("", total=None)
            while process.poll() is None:
                try:
                    process.wait(_SECONDS_BETWEEN_LOOKS)
                except subprocess.TimeoutExpired:
                    progress.update(task, description=_last_line(self.log_path)[:_LINE_SHOWN])

    def _dependencies(self, python: str, requirement: str) -> list[str]:
        """Reads what an installed package says that it needs."""
        command = [python, "-I", "-c", READ_DEPENDENCIES, distribution_name(requirement)]
        result = subprocess.run(command, capture_output=True, check=False, encoding="utf-8")  # noqa: S603 - as above
        try:
            return [str(dependency) for dependency in json.loads(result.stdout)]
        except (ValueError, TypeError) as error:
            message = f"what {requirement} needs cannot be read: {(result.stderr or result.stdout).strip()}"
            raise EngineUnavailable(message, name=self.recipe.name) from error


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

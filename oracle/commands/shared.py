"""What the commands share: exit statuses, and how options are read."""

import argparse
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from oracle.errors import OracleError
from oracle.faults import FAULTS, NO_OP_FAULTS, Fault
from oracle.properties import PROPERTIES, Property
from oracle.scenario import DTYPES
from oracle.subjects import MODES

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_VACUOUS, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
"""Everything held; something did not; the command could not run; nothing failed, but a property saw nothing;
nothing had failed when somebody interrupted, which is no pass."""


_MOST_PROCESSES = 4
"""Each takes half a gigabyte and ten seconds to start, and a hundred cases take a process two minutes."""


def positive(text: str) -> int:
    """Reads a whole number of at least 1."""
    value = int(text)
    if value < 1:
        message = f"{value} is not at least 1"
        raise argparse.ArgumentTypeError(message)
    return value


def output_file(text: str) -> Path:
    """Reads the name of a file to be written, so that one that cannot be is refused before the work, not after it."""
    path = Path(text)
    if path.is_dir():
        message = f"{text} is a folder; name a file in it"
        raise argparse.ArgumentTypeError(message)
    if not path.parent.is_dir():
        message = f"{text} cannot be written, there is no folder {path.parent}; make it first"
        raise argparse.ArgumentTypeError(message)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        message = f"{text} cannot be written, permission is missing; name a file elsewhere"
        raise argparse.ArgumentTypeError(message)
    return path


def pin_threads(folder: Path | None, num_threads: int | None = None) -> None:
    """Sets the number of threads.

    Unless told, generated models run in one: on matrices so small, several wait for each other more than they compute.
    """
    if num_threads is not None or folder is None:
        torch.set_num_threads(num_threads or 1)


def usual_num_processes(folder: Path | None, num_threads: int | None) -> int:
    """Gives how many processes check cases unless told: one for each core, as long as each runs in one thread."""
    if folder is not None or (num_threads or 1) > 1:
        return 1
    return min(_MOST_PROCESSES, os.cpu_count() or 1)


def chosen_modes(text: str) -> tuple[str, ...]:
    """Reads names of modes.

    Raises:
        OracleError: One is unknown.
    """
    return chosen("mode", text, MODES)


def chosen_dtypes(text: str) -> tuple[str, ...]:
    """Reads names of dtypes.

    Raises:
        OracleError: One is unknown.
    """
    return chosen("dtype", text, DTYPES)


def chosen_properties(text: str | None) -> tuple[Property, ...]:
    """Reads names of properties; None stands for all.

    Raises:
        OracleError: One is unknown.
    """
    if text is None:
        return PROPERTIES
    property_by_name = {prop.name: prop for prop in PROPERTIES}
    return tuple(property_by_name[name] for name in chosen("property", text, tuple(property_by_name)))


def chosen(kind: str, text: str, choices: tuple[str, ...]) -> tuple[str, ...]:
    """Reads names, separated by commas, each of which must be one of some choices.

    Raises:
        OracleError: One is unknown.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in choices:
            message = f"{kind} {name!r} is unknown; choose among {', '.join(choices)}"
            raise OracleError(message, name=name)
    return names


def words_of_engine(options: argparse.Namespace) -> list[str]:
    """Gives the options that name the same engine in the dock again, as words of a command line."""
    pairs = (("--engine", options.engine), ("--python", options.python), ("--command", options.engine_command))
    return [word for name, value in pairs if value is not None for word in (name, str(value))]


def add_fault_option(parser: argparse.ArgumentParser) -> None:
    """Lets a command run on a `refinfer` with a known bug."""
    parser.add_argument("--fault", metavar="NAME", help="plant a bug first, to see it found; `faults --list` names all")


def planted(name: str | None) -> AbstractContextManager[None]:
    """Gives what plants a bug while a block runs; for None it plants none.

    Raises:
        OracleError: There is no such bug.
    """
    return nullcontext() if name is None else known_fault(name).planted()


def known_fault(name: str, known: Mapping[str, Fault] = FAULTS | NO_OP_FAULTS) -> Fault:
    """Gives the fault of a name among those that are known; unless told, those that are none are as well.

    Raises:
        OracleError: There is none.
    """
    if name not in known:
        message = f"fault {name!r} is unknown; `python -m oracle faults --list` names them all"
        raise OracleError(message, name=name)
    return known[name]

"""A saved case with everything that befalls requests and blocks, and the scripts' output."""

import os
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests.oracle.eventful_schedule import SCHEDULE


@pytest.fixture
def schedule():
    """The schedule that `saved` saves where it is given no other."""
    return SCHEDULE


@pytest.fixture
def saved(tmp_path):
    """Saves a scenario, with some of its parts changed, and gives the path."""

    def save(scenario=SCHEDULE, name="case", **changes):
        path = tmp_path / f"{name}.json"
        path.write_text(replace(scenario, **changes).to_json(), encoding="utf-8")
        return str(path)

    return save


@pytest.fixture
def run(capsys):
    """Runs a script's main; gives its status and the lines of both streams, without the blanks at their ends."""

    def call(main, *arguments):
        status = main(arguments)
        captured = capsys.readouterr()
        lines = [line.rstrip() for line in (captured.out + captured.err).splitlines()]
        assert all(
            len(line) <= 100 for line in lines if not line.startswith(("error:", "picture:", "the run ended", "first "))
        )
        return status, lines

    return call


@pytest.fixture
def refused(run, saved):
    """Runs a script's main on the saved case, and gives its status and the one line that it refuses with."""

    def call(main, *arguments):
        status, lines = run(main, saved(), *arguments)
        (line,) = lines
        return status, line

    return call


@pytest.fixture
def usage_error(capsys):
    """Runs a script's main on arguments that it does not take, and gives what it says of them."""

    def call(main, *arguments):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
        return capsys.readouterr().err.splitlines()[-1]

    return call


@pytest.fixture
def run_as_script(request, saved):
    """Runs a script in a process of its own on the saved case."""
    root = request.config.rootpath

    def call(script, *arguments):
        return subprocess.run(
            [sys.executable, script, saved(), *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            check=False,
            capture_output=True,
            encoding="utf-8",
        )

    return call


@pytest.fixture
def drawn(run, saved, tmp_path):
    """Lets a script draw the saved case; gives its status and the picture's outermost element."""

    def call(main):
        picture = tmp_path / "picture.svg"
        status, _ = run(main, saved(), "--picture", str(picture))
        return status, ET.parse(picture).getroot()  # noqa: S314 - it is our own

    return call

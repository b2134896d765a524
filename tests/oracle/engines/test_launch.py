"""In another environment only the package of the harness becomes importable, and nothing that lies beside it."""

import subprocess
import sys
from pathlib import Path

import pytest

from oracle.engines.process import LAUNCHER

SHOWS_PATH = """
import runpy, sys
sys.argv = ["launch.py", "none"]
module = runpy.run_path({launcher!r})
sys.path.insert(0, {own!r})
module["make_package_importable"]()
import oracle.engines.messages
print({root!r} in sys.path, {own!r} in sys.path, oracle.engines.messages.__file__)
print(sorted({{"torch", "numpy", "hypothesis", "rich", "refinfer"}} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def shown():
    """What a bare process sees once the package is importable there."""
    root, own = str(LAUNCHER.parents[2]), str(LAUNCHER.parent)
    program = SHOWS_PATH.format(launcher=str(LAUNCHER), own=own, root=root)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_only_the_package_becomes_importable(shown):
    has_root, has_own, file = shown[0].split(maxsplit=2)
    assert (has_root, has_own) == ("False", "False")
    assert Path(file) == LAUNCHER.parent / "messages.py"


def test_nothing_heavy_is_imported(shown):
    assert shown[1] == "[]"

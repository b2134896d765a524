"""Nothing in the repository depends on where somebody keeps it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PERSONAL = re.compile(r"(?<![\w.~$}/-])/(?:home|Users|root|work)/\w|\b[A-Z]:\\+Users\b")


def personal_paths(text: str) -> list[str]:
    """The lines that hold an absolute path into somebody's own folders."""
    return [line.strip() for line in text.splitlines() if PERSONAL.search(line)]


def tracked_files(root: Path) -> list[Path]:
    """What git tracks or would track."""
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        pytest.skip("no git checkout: there is nothing to list")
    listed = subprocess.run(
        [git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return [root / name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


def test_tracked_files_hold_no_personal_paths(root):
    found = {
        file.relative_to(root).as_posix(): personal_paths(file.read_text(encoding="utf-8", errors="replace"))
        for file in tracked_files(root)
    }
    assert found
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("folder", ["home", "Users", "root", "work"])
def test_personal_paths_sees_absolute_paths(folder):
    line = f'model = "/{folder}/somebody/model"'
    assert personal_paths(line) == [line]


def test_personal_paths_sees_windows_paths():
    line = "{}Users{}somebody".format("C:\\", "\\")
    assert personal_paths(line) == [line]


@pytest.mark.parametrize("line", ["models/home/x", "$HOME/home/x", "~/Users/x", "a/root/b"])
def test_personal_paths_lets_relative_paths_pass(line):
    assert personal_paths(line) == []

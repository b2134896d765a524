"""Where the project lies, and which modules and pages it has."""

from pathlib import Path

import pytest

PACKAGES = ("refinfer", "oracle", "debug")


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the checkout."""
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def source_by_module(root) -> dict[str, str]:
    """The source text of every module of ours, by its path from the root, with slashes."""
    return {
        file.relative_to(root).as_posix(): file.read_text(encoding="utf-8")
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.py"))
    }


@pytest.fixture(scope="session")
def page_by_path(root) -> dict[str, str]:
    """The text of every page that is written by hand, by its path from the root, with slashes."""
    found = [*root.glob("*.md"), *root.glob("notes/**/*.md"), *root.glob("debug/*.md"), *root.glob("tests/*.md")]
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in sorted(found)}

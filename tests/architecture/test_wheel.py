"""What is installed is whole: it works outside the checkout and brings nothing else along."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPORT = """
import importlib.metadata, pathlib, sys
import oracle, refinfer
distribution = importlib.metadata.distribution("refinfer")
print(pathlib.Path(refinfer.__file__).parents[1])
print(pathlib.Path(oracle.__file__).parents[1])
print(distribution.version)
print(*[entry.value for entry in distribution.entry_points])
"""


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=root,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def top_level_names(wheel: Path) -> set[str]:
    """The folders and files at the top of a wheel, but for its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def test_wheel_holds_the_two_packages_and_nothing_else(wheel):
    assert top_level_names(wheel) == {"refinfer", "oracle"}


def test_wheel_holds_every_module_and_the_type_markers(wheel, source_by_module):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    modules = {path for path in source_by_module if not path.startswith("debug/")}
    assert modules | {"refinfer/py.typed", "oracle/py.typed"} <= packed


def test_wheel_holds_the_templates_and_the_schemas(wheel, root):
    beside = [*root.glob("oracle/**/templates/*"), *root.glob("oracle/**/*.schema.json")]
    assert {".html", ".css", ".js", ".svg", ".json"} == {path.suffix for path in beside}
    with zipfile.ZipFile(wheel) as archive:
        assert {path.relative_to(root).as_posix() for path in beside} <= set(archive.namelist())


def test_wheel_runs_outside_the_checkout(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    result = subprocess.run(
        [sys.executable, "-c", REPORT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [str(site), str(site), "0.1.0", "oracle.plugin"]


def test_top_level_names_sees_what_does_not_belong(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        for name in ("refinfer/a.py", "tests/b.py", "refinfer-0.1.0.dist-info/METADATA"):
            archive.writestr(name, "")
    assert top_level_names(tmp_path / "a.whl") == {"refinfer", "tests"}

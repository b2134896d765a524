"""Each source file that does something has a test file of its name in the mirrored folder."""

import ast
from pathlib import Path, PurePosixPath

import pytest

REASON_BY_UNMIRRORED_PATH = {
    "oracle/faults/": "each fault is planted, and a test named after it shows that it is caught",
}
"""How the paths of source files without a test file of their own begin, each with the reason."""


def mirror_of(path: str) -> str:
    """Where the tests of a source file belong; the package `refinfer` itself is left out."""
    file = PurePosixPath(path)
    parts = file.parent.parts
    folder = parts[1:] if parts[0] == "refinfer" else parts
    return PurePosixPath("tests", *folder, f"test_{file.stem.strip('_')}.py").as_posix()


def does_something(source: str) -> bool:
    """Whether a file defines a function with a body: names and protocols have nothing to test."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return any(_has_body(function) for function in functions)


def _has_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in function.body
    )


def files_without_mirror(source_by_path: dict[str, str], root: Path) -> set[str]:
    """The source files that do something and whose test file does not exist under `root`."""
    return {
        path
        for path, source in source_by_path.items()
        if does_something(source) and not (root / mirror_of(path)).is_file()
    }


def test_every_source_file_has_its_test_file(source_by_module, root):
    missing = files_without_mirror(source_by_module, root)
    excused = tuple(REASON_BY_UNMIRRORED_PATH)
    assert sorted(path for path in missing if not path.startswith(excused)) == []


@pytest.mark.parametrize("start", REASON_BY_UNMIRRORED_PATH)
def test_no_reason_outlives_what_it_excuses(source_by_module, root, start):
    assert any(path.startswith(start) for path in files_without_mirror(source_by_module, root))


@pytest.mark.parametrize(
    ("path", "mirror"),
    [
        ("refinfer/model/norm.py", "tests/model/test_norm.py"),
        ("refinfer/hub.py", "tests/test_hub.py"),
        ("refinfer/__main__.py", "tests/test_main.py"),
        ("oracle/subjects/subject.py", "tests/oracle/subjects/test_subject.py"),
        ("debug/show_step.py", "tests/debug/test_show_step.py"),
    ],
)
def test_mirror_of_drops_only_the_engines_own_package(path, mirror):
    assert mirror_of(path) == mirror


def test_files_without_mirror_sees_a_missing_test_file(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").touch()
    sources = {
        "refinfer/a.py": "def f(): return 1",
        "refinfer/b.py": "def f(): return 1",
        "refinfer/names.py": "A = int",
        "refinfer/protocol.py": 'class P(Protocol):\n    def f(self):\n        """Does."""\n        ...',
    }
    assert files_without_mirror(sources, tmp_path) == {"refinfer/b.py"}

"""Every script of `debug` says when to reach for it and how, can be run as a file, and is run by its test."""

import ast
from pathlib import PurePosixPath

import pytest

GUARD = "if __name__ == '__main__':\n    sys.exit(main())"


def script_faults(path: str, source: str, test: str) -> list[str]:
    """What a script lacks.

    Args:
        path: Its path from the root.
        source: Its text.
        test: The text of its test file.
    """
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree) or ""
    last = ast.unparse(tree.body[-1]) if tree.body else ""
    name = PurePosixPath(path).stem
    lacks = {
        "does not say when to reach for it": "\nReach for it when " not in docstring,
        "has no example of itself": f"\n    python {path}" not in docstring.replace("PYTHONPATH=mutants ", ""),
        "cannot be run as a file": last != GUARD,
        "is not run by its test": not calls_main(test, name),
    }
    return [fault for fault, is_so in lacks.items() if is_so]


def calls_main(test: str, name: str) -> bool:
    """Whether a test file uses the function `main` of a script, be it imported alone or with its module."""
    tree = ast.parse(test)
    aliases = {
        alias.name: alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("debug", f"debug.{name}")
        for alias in node.names
    }
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)}
    return aliases.get("main") in used or f"{aliases.get(name)}.main" in used


def test_scripts_say_when_and_how_and_are_run(source_by_module, page_by_path, root):
    scripts = {path: source for path, source in source_by_module.items() if path.startswith("debug/")}
    assert scripts
    faults = {}
    for path, source in scripts.items():
        test = root / "tests" / "debug" / f"test_{PurePosixPath(path).name}"
        faults[path] = script_faults(path, source, test.read_text(encoding="utf-8"))
        if path not in page_by_path["debug/README.md"]:
            faults[path].append("stands in no table")
    assert {path: found for path, found in faults.items() if found} == {}


DOCSTRING = '"""Does.\n\nReach for it when x.\n\n    python debug/a.py\n"""\n'
CALL = "from debug.a import main\nmain()"


@pytest.mark.parametrize(
    ("source", "test", "faults"),
    [
        (DOCSTRING + GUARD, CALL, []),
        (DOCSTRING + GUARD, "from debug import a as script\nscript.main([])", []),
        ('"""Does.\n\nLike this:\n\n    python debug/a.py\n"""\n' + GUARD, CALL, ["does not say when to reach for it"]),
        ('"""Does.\n\nReach for it when x.\n"""\n' + GUARD, CALL, ["has no example of itself"]),
        (DOCSTRING, CALL, ["cannot be run as a file"]),
        (DOCSTRING + GUARD, "from debug.a import run\nmain()\nrun()", ["is not run by its test"]),
        (DOCSTRING + GUARD, "from debug import a as script\nscript.run()", ["is not run by its test"]),
    ],
)
def test_script_faults_sees_each_kind(source, test, faults):
    assert script_faults("debug/a.py", source, test) == faults

"""What notes and pages point at is there: tests by their ids, files by their links."""

import ast
import re
from pathlib import Path

import pytest

TEST_ID = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?(?:\[[^\]`]*\])?`")
NAME = re.compile(r"`@?([\w./-]+)(?:\(\.\.\.\))?`")
LINK = re.compile(r"\[[^\]]*\]\((?!\w+:|#)([^)#\s]+)[^)]*\)")


def missing_test_ids(text: str, root: Path) -> list[str]:
    """The test files and tests in backticks that do not exist under `root`."""
    missing = []
    for path, name in TEST_ID.findall(text):
        file = root / path
        if not file.is_file():
            missing.append(path)
        elif name and name not in functions_of(file.read_text(encoding="utf-8")):
            missing.append(f"{path}::{name}")
    return missing


def functions_of(source: str) -> set[str]:
    """The names of all functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}


def broken_links(text: str, folder: Path) -> list[str]:
    """The relative links that lead nowhere from `folder`."""
    return [target for target in LINK.findall(text) if not (folder / target).exists()]


def stray_fences(text: str) -> list[str]:
    """The lines that begin like a fence and neither open nor close a block, and an opening one that none closes."""
    fences = [line for line in text.splitlines() if line.startswith("```")]
    stray = [line for place, line in enumerate(fences) if not re.fullmatch(r"```" if place % 2 else r"```\w*", line)]
    return stray or (fences[-1:] if len(fences) % 2 else [])


def test_pages_name_tests_that_exist(page_by_path, root):
    missing = {path: missing_test_ids(page, root) for path, page in page_by_path.items()}
    assert missing
    assert {page: ids for page, ids in missing.items() if ids} == {}


def test_pages_link_to_files_that_exist(page_by_path, root):
    broken = {path: broken_links(page, (root / path).parent) for path, page in page_by_path.items()}
    assert {page: links for page, links in broken.items() if links} == {}


def test_pages_open_and_close_their_blocks(page_by_path):
    stray = {path: stray_fences(page) for path, page in page_by_path.items()}
    assert {page: lines for page, lines in stray.items() if lines} == {}


def names_that_lead_nowhere(section: str, files: list[str], sources: str) -> list[str]:
    """What stands in backticks and is neither the end of a file's path nor a name of the code."""
    named = [name for name in NAME.findall(section) if "NAME" not in name]
    paths = [name for name in named if name.endswith((".py", ".toml"))]
    words = [name for name in named if "/" not in name and name not in paths]
    lost = [path for path in paths if not any(f"/{file}".endswith(f"/{path}") for file in files)]
    return lost + [word for word in words if not re.search(rf"\b{word.split('.')[-1]}\b", sources)]


def test_where_to_add_something_leads_to_files_and_names_that_exist(root, source_by_module):
    page = (root / "notes" / "README.md").read_text("utf-8")
    _, _, section = page.partition("## Where to add something\n")
    section, _, _ = section.partition("\n## ")
    files = [file.relative_to(root).as_posix() for pattern in ("*.toml", "*/**/*.py") for file in root.glob(pattern)]
    assert len(NAME.findall(section)) > 50
    assert names_that_lead_nowhere(section, files, "\n".join(source_by_module.values())) == []


def test_names_that_lead_nowhere_sees_files_and_names():
    section = "`a/b.py` `b.py` `c.py` `Klass.method` `@decorator(...)` `gone` `NAME_x.py` `a`"
    sources = "class Klass:\n    def method(a): ...\ndef decorator(): ..."
    assert names_that_lead_nowhere(section, ["refinfer/a/b.py"], sources) == ["c.py", "gone"]


def properties_of(source: str) -> dict[str, str]:
    """What each call of `Property` in a file names and asks."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {
        ast.literal_eval(call.args[0]): ast.literal_eval(call.args[1])
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "Property"
    }


def test_note_on_the_oracle_lists_every_property(root):
    properties = properties_of((root / "oracle" / "properties.py").read_text("utf-8"))
    page = (root / "notes" / "09-oracle.md").read_text("utf-8")
    assert len(properties) > 10
    assert [line for line in page.splitlines() if re.match(r"\| `\w+` \| .*\?", line)] == [
        f"| `{name}` | {question} |" for name, question in properties.items()
    ]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`tests/test_a.py` and `tests/test_a.py::test_one[x]`", []),
        ("`tests/test_b.py`", ["tests/test_b.py"]),
        ("`tests/test_a.py::test_two`", ["tests/test_a.py::test_two"]),
    ],
)
def test_missing_test_ids_sees_files_and_names(tmp_path, text, missing):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_one(): ...\n")
    assert missing_test_ids(text, tmp_path) == missing


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](here.md) [b](here.md#part) [c](#part) [d](https://example.org/x)", []),
        ("[a](gone.md)", ["gone.md"]),
        ("[a](gone.md#part)", ["gone.md"]),
    ],
)
def test_broken_links_sees_missing_files(tmp_path, text, broken):
    (tmp_path / "here.md").touch()
    assert broken_links(text, tmp_path) == broken


@pytest.mark.parametrize(
    ("text", "stray"),
    [
        ("```sh\na\n```\n\n```\nb\n```\n", []),
        ("```sh\na\n```## Next\n\n```sh\nb\n```\n", ["```## Next"]),
        ("```sh\na\n```sh\n", ["```sh"]),
        ("```\na\n```\n```\n", ["```"]),
    ],
)
def test_stray_fences_sees_what_neither_opens_nor_closes(text, stray):
    assert stray_fences(text) == stray

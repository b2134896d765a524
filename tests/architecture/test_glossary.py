"""The glossary is one table of one term each, and the code keeps to it."""

import ast
import re
from collections import Counter

import pytest

IDENTIFIER = re.compile(r"`(\w+)`")


def glossary_rows(page: str) -> list[list[str]]:
    """The cells of each row of the first table, without its head."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def row_faults(rows: list[list[str]]) -> list[str]:
    """Rows that are no rows of three, terms without a meaning, terms that stand twice."""
    faults = [f"not three cells: {row}" for row in rows if len(row) != 3]
    faults += [f"no meaning: {row[0]}" for row in rows if len(row) == 3 and not (row[0] and row[1])]
    num_rows_by_term = Counter(row[0].split(" (")[0] for row in rows)
    faults += [f"twice: {term}" for term, count in num_rows_by_term.items() if count > 1]
    return faults


def unwanted_names(rows: list[list[str]]) -> set[str]:
    """The identifiers in backticks in the last column."""
    return {name for row in rows for name in IDENTIFIER.findall(row[-1])}


def defined_names(source: str) -> set[str]:
    """The names that a file gives to something: functions, classes, arguments, variables, fields."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


@pytest.fixture(scope="module")
def rows(root) -> list[list[str]]:
    """The table of the glossary."""
    return glossary_rows((root / "notes" / "glossary.md").read_text(encoding="utf-8"))


def test_glossary_has_one_row_for_each_term(rows):
    assert rows
    assert row_faults(rows) == []


def test_code_uses_no_name_that_the_glossary_rules_out(rows, source_by_module):
    unwanted = unwanted_names(rows)
    assert unwanted
    found = {path: unwanted & defined_names(source) for path, source in source_by_module.items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_glossary_rows_reads_the_table_without_its_head():
    page = "# G\n\n| term | meaning | not |\n|---|---|---|\n| a (`a`) | is | `b`, c |\n"
    assert glossary_rows(page) == [["a (`a`)", "is", "`b`, c"]]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([["a", "is"]], "not three cells: ['a', 'is']"),
        ([["a", "", "b"]], "no meaning: a"),
        ([["a (`x`)", "is", ""], ["a", "was", ""]], "twice: a"),
    ],
)
def test_row_faults_sees_each_kind(rows, fault):
    assert row_faults(rows) == [fault]


@pytest.mark.parametrize(
    "source",
    [
        "def bad(): ...",
        "class bad: ...",
        "def f(bad): ...",
        "bad = 1",
        "class A:\n    bad: int",
        "self.bad = 1",
        "for bad in x: ...",
    ],
)
def test_defined_names_sees_each_kind(source):
    assert "bad" in defined_names(source)


def test_defined_names_leaves_other_peoples_names_out():
    assert defined_names("f(bad=1).bad") == set()


def test_unwanted_names_are_those_in_backticks():
    assert unwanted_names([["a", "is", "`seq_len`, sequence, `x`"]]) == {"seq_len", "x"}

"""Limits on size, and statements that source files do without."""

import ast

import pytest

MAX_FILE_LINES = 250
MAX_FUNCTION_LINES = 45


def style_faults(source: str) -> list[str]:
    """What a source file has that it should not have, a few words each."""
    num_lines = len(source.splitlines())
    faults = [f"{num_lines} lines"] if num_lines > MAX_FILE_LINES else []
    found = (statement_fault(node) for node in ast.walk(ast.parse(source)))
    return faults + [fault for fault in found if fault]


def statement_fault(node: ast.AST) -> str | None:
    """What is wrong with one piece of code, or nothing."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            length = (node.end_lineno or 0) - node.lineno + 1
            return f"{node.name} has {length} lines" if length > MAX_FUNCTION_LINES else None
        case ast.Assert():
            return f"assert in line {node.lineno}"
        case ast.Global():
            return f"global in line {node.lineno}"
        case ast.Call(func=ast.Name(id="print")):
            return f"print in line {node.lineno}"
        case ast.ImportFrom(module="__future__"):
            return f"future import in line {node.lineno}"
        case _:
            return None


def test_source_files_keep_to_the_style(source_by_module):
    faults = {path: style_faults(source) for path, source in source_by_module.items()}
    assert {path: found for path, found in faults.items() if found} == {}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("x = 1\n" * 251, "251 lines"),
        ("def f():\n" + "    x = 1\n" * 45, "f has 46 lines"),
        ("class A:\n    async def f(self):\n" + "        x = 1\n" * 45, "f has 46 lines"),
        ("def f(x):\n    assert x\n", "assert in line 2"),
        ("def f():\n    global x\n    x = 1\n", "global in line 2"),
        ("print(1)\n", "print in line 1"),
        ("from __future__ import annotations\n", "future import in line 1"),
    ],
)
def test_style_faults_sees_each_kind(source, fault):
    assert style_faults(source) == [fault]


def test_style_faults_lets_the_limits_themselves_pass():
    source = "def f():\n" + "    x = 1\n" * 44 + "console.print(1)\n" * 205
    assert style_faults(source) == []

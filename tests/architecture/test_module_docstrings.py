"""Every module opens with one line that says what it is for."""

import ast

import pytest


def opening_fault(source: str) -> str | None:
    """What is wrong with the first line of a module's docstring, or nothing."""
    docstring = ast.get_docstring(ast.parse(source))
    if not docstring:
        return "has no docstring"
    first, *rest = docstring.splitlines()
    if not first.endswith((".", "?")):
        return "opens with a line that is no sentence"
    if rest and rest[0]:
        return "opens with more than one line"
    return None


def test_every_module_opens_with_one_line(source_by_module):
    faults = {path: opening_fault(source) for path, source in source_by_module.items()}
    assert {path: fault for path, fault in faults.items() if fault} == {}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('"""One line."""', None),
        ('"""What is it?\n\nMore."""', None),
        ("x = 1", "has no docstring"),
        ('"""No full stop"""', "opens with a line that is no sentence"),
        ('"""One sentence.\nAnd another."""', "opens with more than one line"),
    ],
)
def test_opening_fault_sees_bad_openings(source, fault):
    assert opening_fault(source) == fault

"""The error trees that are drawn are the trees that the classes form."""

import ast
import re

import pytest

DRAWN = re.compile(r"^(?P<indent> *)- (?P<name>\w+)(?: \((?P<others>[\w, ]+)\))?(?::|$)")


def drawn_tree(source: str) -> dict[str, tuple[str, ...]]:
    """For each error in the list of the module docstring: the names of its bases."""
    bases: dict[str, tuple[str, ...]] = {}
    branch: list[str] = []
    for line in (ast.get_docstring(ast.parse(source)) or "").splitlines():
        if match := DRAWN.match(line):
            del branch[len(match["indent"]) // 2 :]
            others = match["others"].split(", ") if match["others"] else []
            bases[match["name"]] = (branch[-1] if branch else "Exception", *others)
            branch.append(match["name"])
    return bases


def class_tree(source: str) -> dict[str, tuple[str, ...]]:
    """For each class of a module: the names of its bases."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {node.name: tuple(ast.unparse(base) for base in node.bases) for node in classes}


@pytest.mark.parametrize("path", ["refinfer/errors.py", "oracle/errors.py"])
def test_drawn_error_tree_equals_the_classes(source_by_module, path):
    drawn = drawn_tree(source_by_module[path])
    assert drawn
    assert list(drawn.items()) == list(class_tree(source_by_module[path]).items())


def test_drawn_tree_reads_parents_from_the_indentation():
    source = '"""Tree.\n\n- A\n  - B (ValueError): b\n    - C: c\n  - D: d\n"""\n'
    assert drawn_tree(source) == {
        "A": ("Exception",),
        "B": ("A", "ValueError"),
        "C": ("B",),
        "D": ("A",),
    }


@pytest.mark.parametrize(
    "classes",
    [
        "class A(Exception): ...",
        "class A(Exception): ...\nclass B(A): ...",
        "class A(Exception): ...\nclass B(Exception, ValueError): ...",
        "class A(Exception): ...\nclass B(A, ValueError): ...\nclass C(A): ...",
    ],
)
def test_a_class_missing_moved_or_added_shows_as_a_difference(classes):
    source = f'"""Tree.\n\n- A\n  - B (ValueError): b\n"""\n{classes}\n'
    assert drawn_tree(source) != class_tree(source)

"""The file tree of the README says what the modules say of themselves."""

import ast
from pathlib import Path

import pytest

HEADING = "## The files"


def drawn_in_readme(readme: str) -> list[str]:
    """The lines of the first code block under the heading; a fence closes it only where it stands alone."""
    _, _, section = readme.partition(f"\n{HEADING}\n")
    _, _, rest = section.partition("\n```text\n")
    block, _, after = rest.partition("\n```")
    assert after.partition("\n")[0] == "", f"the line that closes the block under {HEADING!r} says more than that"
    return block.splitlines()


def opening_line(file: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def draw(folder: Path, depth: int = 0) -> list[str]:
    """Draws a package: its own line, then its modules and packages, each with its first line."""
    lines = [_line(f"{folder.name}/", depth, opening_line(folder / "__init__.py"))]
    modules = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
    packages = [file.parent for file in folder.glob("*/__init__.py")]
    lines += [_line(entry.name, depth + 1, opening_line(entry)) for entry in sorted(modules)]
    for entry in sorted(packages):
        lines += draw(entry, depth + 1)
    return lines


def _line(name: str, depth: int, text: str) -> str:
    return f"{'  ' * depth + name:<25} {text}"


def branch(lines: list[str], name: str) -> list[str]:
    """The line at the margin that begins with `name`, and what is indented below it."""
    found: list[str] = []
    for line in lines:
        if found and not line.startswith(" "):
            break
        if found or line.startswith(name):
            found.append(line)
    return found


def entries_that_do_not_exist(lines: list[str], root: Path) -> list[str]:
    """The lines at the margin that name nothing under `root`."""
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    return [name for name in names if not (root / name).exists()]


@pytest.mark.parametrize("package", ["refinfer", "oracle"])
def test_readme_draws_every_module_with_its_own_words(root, package):
    readme = drawn_in_readme((root / "README.md").read_text(encoding="utf-8"))
    drawn = draw(root / package)
    assert branch(readme, f"{package}/") == drawn, "\n".join(["the tree is:", *drawn])


def test_readme_draws_only_what_exists(root):
    lines = drawn_in_readme((root / "README.md").read_text(encoding="utf-8"))
    assert lines
    assert entries_that_do_not_exist(lines, root) == []


def test_draw_shows_modules_and_packages_with_their_first_lines(tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").write_text('"""Outer.\n\nMore."""\n')
    (tmp_path / "outer" / "zebra.py").write_text('"""Zebra."""\n')
    (inner / "__init__.py").write_text('"""Inner."""\n')
    (inner / "ant.py").write_text('"""Ant."""\n')
    drawn = [line.split() for line in draw(tmp_path / "outer")]
    assert drawn == [
        ["outer/", "Outer."],
        ["zebra.py", "Zebra."],
        ["inner/", "Inner."],
        ["ant.py", "Ant."],
    ]


def test_draw_keeps_a_long_name_apart_from_its_text(tmp_path):
    (tmp_path / "__init__.py").write_text('"""Outer."""\n')
    (tmp_path / "a_name_that_is_longer_than_its_column.py").write_text('"""Long."""\n')
    assert draw(tmp_path)[1].split() == ["a_name_that_is_longer_than_its_column.py", "Long."]


def test_drawn_in_readme_takes_the_block_under_the_heading():
    readme = f"# T\n\n```text\nnot this\n```\n\n{HEADING}\n\nWords.\n\n```text\na/  A.\n  b  B.\n```\n"
    assert drawn_in_readme(readme) == ["a/  A.", "  b  B."]


def test_drawn_in_readme_refuses_a_fence_that_a_heading_is_glued_to():
    with pytest.raises(AssertionError, match="says more"):
        drawn_in_readme(f"# T\n\n{HEADING}\n\n```text\na/  A.\n```## Next\n\n```sh\nb\n```\n")


def test_branch_ends_at_the_next_line_at_the_margin():
    lines = ["a/  A.", "  x  X.", "b/  B.", "  y  Y.", "    z  Z.", "c  C."]
    assert branch(lines, "b/") == ["b/  B.", "  y  Y.", "    z  Z."]


def test_entries_that_do_not_exist_names_what_is_missing(tmp_path):
    (tmp_path / "here").mkdir()
    lines = ["here/  Yes.", "  inside  Not looked at.", "gone.md  No."]
    assert entries_that_do_not_exist(lines, tmp_path) == ["gone.md"]

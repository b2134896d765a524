"""Commands on pages and in sources are ones that their tools take: they are read as by the tool, and nothing runs."""

import ast
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from unittest import mock

import pytest

pytestmark = pytest.mark.without_shape_checks

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_BACKTICKS = re.compile(r"(?<!`)`((?:[A-Z_]+=\S+ )*(?:\S*/)?python3? [^`\n]+)`(?!`)")
TYPED = re.compile(r"^ {4}((?:[A-Z_]+=\S+ )*python3? .+)$", re.MULTILINE)
"""An example in a docstring stands in a paragraph of its own, four blanks further in."""

WHAT_A_MENTION_MAY_LACK = re.compile(r"required|expected")
"""In running text a command may be named without all that it needs."""

VALUE_BY_PLACEHOLDER = {"N": "1", "B": "1", "NAME": "norm_epsilon"}
"""What pages write where a number or a known name has to stand."""


class Taken(Exception):
    """The arguments were read."""


class Refused(Exception):
    """They were not, and this is why."""


def simple_commands(script: str) -> Iterator[list[str]]:
    """Gives the commands of shell text as words, without comments and variables that are set before them."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            command, words = words[:end], words[end + 1 :]
            while command and re.match(r"[A-Z_]+=", command[0]):
                del command[0]
            if command:
                yield command


def tool_of(command: Sequence[str]) -> tuple[Callable[[Sequence[str]], object], list[str]] | None:
    """Gives the function that a command calls, and its arguments; None for a tool of somebody else."""
    match command:
        case [python, "-m", "refinfer" | "oracle" | "tests.benchmarks" as name, *rest] if "python" in python:
            return import_module(f"{name}.__main__").main, rest
        case [python, path, *rest] if "python" in python and path.startswith("debug/"):
            return import_module(path.removesuffix(".py").replace("/", ".")).main, rest
        case _:
            return None


def objection(command: Sequence[str]) -> str | None:
    """Says what the tool has against its arguments; None for nothing, or where the tool is not ours."""

    def read(parser, arguments=None, namespace=None):
        parse(parser, arguments, namespace)
        raise Taken

    def refuse(_, message):
        raise Refused(message)

    parse = ArgumentParser.parse_args
    try:
        tool = tool_of(command)
    except ModuleNotFoundError as error:
        return str(error)
    if tool is None:
        return None
    main, words = tool
    with mock.patch.object(ArgumentParser, "parse_args", read), mock.patch.object(ArgumentParser, "error", refuse):
        try:
            main([VALUE_BY_PLACEHOLDER.get(word, word) for word in words])
        except Taken:
            return None
        except Refused as error:
            return str(error)
        except SystemExit as end:  # after --help
            return None if not end.code else f"ends with {end.code}"
    return "reads no arguments"


def objections(scripts: Sequence[str], *, are_mentions: bool = False) -> list[str]:
    """Gives each command that its tool does not take, with what it says; of a mention something may be left out."""
    found = []
    for script in scripts:
        for command in simple_commands(script):
            said = objection(command)
            if said is not None and not (are_mentions and WHAT_A_MENTION_MAY_LACK.search(said)):
                found.append(f"{shlex.join(command)}: {said}")
    return found


def fenced(page: str) -> list[str]:
    """The blocks of a page that are meant for a shell."""
    return [block for language, block in FENCED.findall(page) if language == "sh"]


def mentioned(text: str) -> list[str]:
    """The commands in backticks, outside of blocks."""
    return IN_BACKTICKS.findall(FENCED.sub("", text))


def strings_of(source: str) -> list[str]:
    """The texts of a source file, docstrings among them; an X stands for each value that is put into one."""
    tree = ast.parse(source)
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in ast.walk(node)}
    texts = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values) for node in joined
    ]
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in parts)
    return texts + [node.value for node in constants if isinstance(node.value, str)]


def test_commands_of_pages_are_taken_by_their_tools(page_by_path):
    scripts = {path: fenced(page) for path, page in page_by_path.items()}
    assert sum(map(len, scripts.values())) > 10
    found = {path: objections(own) for path, own in scripts.items()}
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_commands_that_pages_mention_are_taken_by_their_tools(page_by_path):
    found = {path: objections(mentioned(page), are_mentions=True) for path, page in page_by_path.items()}
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_commands_in_sources_are_taken_by_their_tools(source_by_module, root):
    benchmarks = {str(file): file.read_text("utf-8") for file in (root / "tests" / "benchmarks").glob("*.py")}
    found = {}
    for path, source in {**source_by_module, **benchmarks}.items():
        texts = strings_of(source)
        typed = [command for text in texts for command in TYPED.findall(text)]
        named = [command for text in texts for command in mentioned(text)]
        found[path] = objections(typed) + objections(named, are_mentions=True)
    assert {path: faults for path, faults in found.items() if faults} == {}


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("A=1 B=2 python x.py  # why\n\n# only words\n", [["python", "x.py"]]),
        ("python -m venv v && v/bin/pip install .", [["python", "-m", "venv", "v"], ["v/bin/pip", "install", "."]]),
        ("python x.py \\\n  'one word' 'a && b'", [["python", "x.py", "one word", "a && b"]]),
    ],
)
def test_simple_commands_are_read_as_a_shell_reads_them(script, commands):
    assert list(simple_commands(script)) == commands


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("python -m oracle check --exampels 3", "unrecognized arguments: --exampels"),
        ("python -m oracle chekc", "invalid choice: 'chekc'"),
        ("python -m oracle check --examples few", "invalid positive value: 'few'"),
        ("python -m refinfer generate", "arguments are required: --model, PROMPT"),
        (".venv/bin/python -m tests.benchmarks peers --turns 2", "unrecognized arguments: --turns 2"),
        ("PYTHONPATH=x python debug/soak.py --step 2 3", "unrecognized arguments: 3"),
        ("python debug/no_such.py", "No module named 'debug.no_such'"),
    ],
)
def test_objections_sees_what_a_tool_does_not_take(script, words):
    (found,) = objections([script])
    assert words in found


@pytest.mark.parametrize(
    "script",
    ["python -m oracle faults NAME --examples N", "python -m tests.benchmarks --help", "python -m pytest -n 2"],
)
def test_objections_lets_placeholders_help_and_other_tools_pass(script):
    assert objections([script]) == []


def test_mention_may_leave_out_what_a_command_needs_and_nothing_else():
    assert objections(["python -m oracle check --engine", "python -m refinfer"], are_mentions=True) == []
    assert len(objections(["python -m oracle chekc"], are_mentions=True)) == 1


def test_commands_are_found_on_a_page():
    page = "a `python x.py` b\n```sh\npython y.py\n```\n```text\npython z.py `python w.py`\n```\n``python v``\n"
    assert fenced(page) == ["python y.py\n"]
    assert mentioned(page) == ["python x.py"]


def test_strings_of_a_source_have_their_values_left_out():
    source = 'def f(x):\n    """D.\n\n        python a.py\n    """\n    return f"`python {x} b`", "c", 1\n'
    assert strings_of(source) == ["`python X b`", "D.\n\n        python a.py\n    ", "c"]

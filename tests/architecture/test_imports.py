"""Who may import whom: the contracts of pyproject.toml, and rules on single statements."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

OURS = {"refinfer", "oracle", "debug"}

REASON_BY_MODEL_IMPORTER = {
    "oracle/reference.py": "it is the reference",
    "oracle/families.py": "it writes tiny checkpoints of families that only transformers has all of",
    "oracle/engines/adapters/hugging_face_generate.py": "there transformers is the engine in the dock",
    "oracle/engines/adapters/hugging_face_batch.py": "likewise",
    "oracle/engines/adapters/hugging_face_manager.py": "likewise",
}
"""The files that may import model classes of transformers, each with the reason."""

BARRED_BY_PATH = {
    "oracle/witness.py": {"refinfer", "torch", "transformers"},
    "refinfer/cache/block_": {"torch", "numpy"},
    "refinfer/cache/prefix": {"torch", "numpy"},
    "refinfer/scheduler/": {"torch", "numpy"},
}
"""What the files whose path begins like this do not import, though a storey would let them."""

LINT = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True, no_logo=True))
"""


def imported_names(node: ast.AST) -> list[str]:
    """What one statement imports, as dotted names; nothing for another statement."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names):
            return [f"{module or ''}.{alias.name}" for alias in names]
        case _:
            return []


def _imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        for name in imported_names(node):
            yield node, name


def import_faults(source: str) -> list[str]:
    """Relative imports, and imports of ours that do not stand at the top level of the file."""
    tree = ast.parse(source)
    faults = []
    for node, name in _imports(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            faults.append(f"relative import in line {node.lineno}")
        elif name.split(".")[0] in OURS and node not in tree.body:
            faults.append(f"import of {name} inside a block")
    return faults


def model_imports(source: str) -> list[str]:
    """What a file imports from transformers beyond tokenizers."""
    names = [name for _, name in _imports(ast.parse(source)) if name.split(".")[0] == "transformers"]
    return [name for name in names if not re.search("tokeniz", name, re.IGNORECASE)]


def barred_imports(path: str, source: str) -> list[str]:
    """What a file imports though its path bars it."""
    barred = {name for start, names in BARRED_BY_PATH.items() if path.startswith(start) for name in names}
    return [name for _, name in _imports(ast.parse(source)) if name.split(".")[0] in barred]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the contracts of the `pyproject.toml` in a folder."""
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_imports_keep_the_contracts(root):
    result = lint(root)
    assert result.returncode == 0, result.stdout + result.stderr


def test_imports_are_absolute_and_stand_at_the_top(source_by_module):
    faults = {path: import_faults(source) for path, source in source_by_module.items()}
    assert {path: found for path, found in faults.items() if found} == {}


def test_only_those_with_a_reason_import_model_classes(source_by_module):
    found = {path for path, source in source_by_module.items() if model_imports(source)}
    assert found == set(REASON_BY_MODEL_IMPORTER)


def test_policy_and_witness_import_nothing_that_is_barred_to_them(source_by_module):
    found = {path: barred_imports(path, source) for path, source in source_by_module.items()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("oracle/witness.py", ["torch.nn"]),
        ("refinfer/scheduler/static.py", ["torch.nn"]),
        ("refinfer/cache/static.py", []),
    ],
)
def test_barred_imports_sees_them_where_they_are_barred(path, found):
    assert barred_imports(path, "from torch import nn\nimport math") == found


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("from . import errors", "relative import in line 1"),
        ("from .errors import A", "relative import in line 1"),
        ("def f():\n    import refinfer.cache", "import of refinfer.cache inside a block"),
        ("if TYPE_CHECKING:\n    from oracle import a", "import of oracle.a inside a block"),
    ],
)
def test_import_faults_sees_each_kind(source, fault):
    assert import_faults(source) == [fault]


def test_import_faults_lets_other_packages_be_imported_late():
    assert import_faults("import refinfer\ndef f():\n    import torch") == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import transformers", ["transformers"]),
        ("from transformers import LlamaForCausalLM", ["transformers.LlamaForCausalLM"]),
        ("from transformers.models.llama import a", ["transformers.models.llama.a"]),
        ("def f():\n    import transformers.modeling_utils", ["transformers.modeling_utils"]),
        ("from transformers import AutoTokenizer", []),
    ],
)
def test_model_imports_sees_all_but_tokenizers(source, found):
    assert model_imports(source) == found


@pytest.fixture
def skeleton(tmp_path: Path, root: Path, source_by_module: dict[str, str]) -> Path:
    """The project's contracts over its modules, each of them empty."""
    for path in source_by_module:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "pyproject.toml").write_bytes((root / "pyproject.toml").read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("path", "statement", "broken"),
    [
        ("refinfer/cache/new.py", "import refinfer.engine", "storeys"),
        ("refinfer/cache/new.py", "import refinfer.model", "storeys"),
        ("refinfer/new.py", "", "storeys"),
        ("refinfer/engine/new.py", "import oracle", "harness-above-engine"),
        ("refinfer/engine/new.py", "import hypothesis", "no-test-tools-in-the-engine"),
    ],
)
def test_each_contract_can_break(skeleton, path, statement, broken):
    (skeleton / path).write_text(f"{statement}\n")
    contracts = tomllib.loads((skeleton / "pyproject.toml").read_text())["tool"]["importlinter"]
    name_by_id = {contract["id"]: contract["name"] for contract in contracts["contracts"]}
    result = lint(skeleton)
    assert result.returncode == 1
    assert re.search(re.escape(name_by_id[broken]) + r"\s+BROKEN", result.stdout), result.stdout


def test_contract_on_cycles_can_break(skeleton):
    (skeleton / "oracle" / "one.py").write_text("import oracle.two\n")
    (skeleton / "oracle" / "two.py").write_text("import oracle.one\n")
    result = lint(skeleton)
    assert result.returncode == 1
    assert re.search(r"No import cycles\s+BROKEN", result.stdout), result.stdout

"""What the packages promise by name is what they export."""

import ast
import importlib

import pytest

PROMISED = {
    "CompletionOutput",
    "EngineConfig",
    "LLM",
    "LLMEngine",
    "Logprob",
    "RequestOutput",
    "SamplingParams",
    "load_model",
}
"""What users, examples and notes import from `refinfer`."""


def export_faults(source: str, package: str) -> list[str]:
    """Names that the first file of a package imports but does not export, or exports but does not have.

    Its own modules, imported for what they hold, are no names to export.
    """
    exported: list[str] = []
    imported: set[str] = set()
    defined: set[str] = set()
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                exported = ast.literal_eval(value)
            case ast.Assign(targets=[ast.Name(id=name)]):
                defined.add(name)
            case ast.ImportFrom(module=module, names=names) if module != package:
                imported |= {alias.asname or alias.name for alias in names}
            case _:
                pass
    faults = [f"{name} is imported, not exported" for name in sorted(imported - set(exported))]
    faults += [f"{name} is exported, not there" for name in sorted(set(exported) - imported - defined)]
    return faults


def test_refinfer_exports_what_is_promised():
    refinfer = importlib.import_module("refinfer")
    assert set(refinfer.__all__) == PROMISED
    assert [name for name in sorted(PROMISED) if not hasattr(refinfer, name)] == []


def test_every_package_exports_what_it_imports(source_by_module):
    faults = {
        path: export_faults(source, path.removesuffix("/__init__.py").replace("/", "."))
        for path, source in source_by_module.items()
        if path.endswith("__init__.py")
    }
    assert {path: found for path, found in faults.items() if found} == {}


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ('from a import B, c\n__all__ = ["B", "c"]', []),
        ('from own import module\nD = module.D\n__all__ = ["D"]', []),
        ("from a import B", ["B is imported, not exported"]),
        ('__all__ = ["B"]', ["B is exported, not there"]),
    ],
)
def test_export_faults_sees_each_kind(source, faults):
    assert export_faults(source, "own") == faults

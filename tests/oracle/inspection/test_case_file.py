"""A case is found in its path and in every line that a failure prints, and nothing else is taken for one."""

import json
from pathlib import Path

import pytest

from oracle.errors import ScenarioError
from oracle.inspection.case_file import load_case, named_in


@pytest.mark.parametrize(
    ("text", "path", "model"),
    [
        ("oracle-failures/bits-paged.json", "oracle-failures/bits-paged.json", None),
        ("a b.json", "a b.json", None),
        (
            "run it again: python -m oracle replay out/bits-paged.json  (--explain says why)",
            "out/bits-paged.json",
            None,
        ),
        ("run it again: python -m oracle replay out/a b.json  (--explain says why)", "out/a b.json", None),
        ("run it again: python -m oracle replay schedules-paged.json", "schedules-paged.json", None),
        (
            "explained in 3.1 s; again: python -m oracle replay 'a b.json' --model smollm2 --explain",
            "a b.json",
            "smollm2",
        ),
        ("again: python -m oracle replay ../x.json --explain", "../x.json", None),
        ("python -m oracle replay case --model", "case", None),
        ("say 'python -m oracle replay case --explain", "case", None),
        ("python -m oracle replay case --model 'never closed", "case", "'never"),
    ],
)
def test_named_in_finds_path_and_model(text, path, model):
    assert named_in(text) == (Path(path), model)


@pytest.mark.parametrize("rest", ["", "   ", "--explain"])
def test_named_in_refuses_a_line_without_a_path(rest):
    with pytest.raises(ScenarioError, match="names no case"):
        named_in(f"run it again: python -m oracle replay {rest}")


def test_lines_that_failures_print_are_understood():
    """The very words that the commands put together, so that a changed line shows here."""
    root = Path(__file__).parents[3] / "oracle"
    for file in ("commands/check.py", "commands/schedules.py", "explain/pytest_report.py"):
        assert "python -m oracle replay {path}" in (root / file).read_text(encoding="utf-8")


def test_load_case_reads_a_line(tmp_path, schedule):
    path = tmp_path / "case.json"
    path.write_text(schedule.to_json(), encoding="utf-8")
    case = load_case(f"run it again: python -m oracle replay {path}  (--explain says why)")
    assert (case.path, case.scenario, case.folder) == (path, schedule, None)


def test_load_case_refuses_what_is_not_there():
    with pytest.raises(ScenarioError, match=r"nowhere.json cannot be read .* give a scenario file"):
        load_case("nowhere.json")


def test_load_case_refuses_a_model_beside_a_generated_one(tmp_path, schedule, symbolic):
    for name, scenario in (("model", schedule), ("symbolic", symbolic)):
        path = tmp_path / f"{name}.json"
        path.write_text(scenario.to_json(), encoding="utf-8")
        with pytest.raises(ScenarioError, match="leave --model somewhere away"):
            load_case(str(path), "somewhere")


def test_load_case_refuses_a_case_without_a_model(tmp_path, schedule):
    path = tmp_path / "case.json"
    path.write_text(json.dumps(json.loads(schedule.to_json()) | {"checkpoint": None}), encoding="utf-8")
    with pytest.raises(ScenarioError, match="name the one that it ran on with --model"):
        load_case(str(path))


def test_load_case_refuses_a_case_of_an_engine_in_the_dock():
    cases = sorted((Path(__file__).parents[3] / "notes" / "verdicts" / "cases").glob("*.json"))
    assert cases
    with pytest.raises(ScenarioError, match="an engine in the dock"):
        load_case(str(cases[0]))

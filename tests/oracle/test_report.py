"""The report is legible at every width, safe against what messages hold, and complete as JSON."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from oracle.observation import Observation
from oracle.report import as_json, describe_requests, environment, save_failures, show_table
from oracle.scenario import RequestSpec, Scenario
from oracle.subjects import MODES
from oracle.verdicts import Cell, Failure

SCENARIO = Scenario(requests=(RequestSpec((1, 2, 3), max_tokens=4), RequestSpec((5,), cuts=())), dtype="float16")


def seen(name, mode, dtype="float32", **values):
    """A cell that has seen one case."""
    cell = Cell(name, mode)
    cell.see(Observation(**values), dtype)
    return cell


def failed(name, mode, message, scenario=SCENARIO):
    """A cell that has failed."""
    cell = seen(name, mode)
    cell.failure = Failure(message, scenario)
    return cell


def shown(cells, width=80, modes=MODES):
    """What is printed on a terminal of a width."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    show_table(console, cells, modes)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


BUSY_CELLS = [
    seen("alone_equals_batched", mode, num_near_ties=3, num_exact_ties=1234, num_positions=99, largest_difference=1e-15)
    for mode in MODES
]
for cell in BUSY_CELLS:
    for dtype in ("bfloat16", "float16"):
        cell.see(Observation(num_near_ties=1234, subject_errors=(1.5, 3.0, 9), reference_errors=(1.0, 2.0, 9)), dtype)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_figure_is_broken_across_lines(width):
    text = shown(BUSY_CELLS, width)
    assert max(map(len, text.splitlines())) <= width
    for figure in (
        "alone_equals_batched",
        "pass 3/3",
        "diff 1e-15",
        "near 3",
        "exact 1234",
        "half 2468",
        "bf16 1.50",
        "fp16 1.50",
    ):
        assert text.count(figure) == (1 if figure == "alone_equals_batched" else len(MODES)), figure


@pytest.mark.parametrize(
    ("cell", "figure"),
    [
        (seen("order", "none"), "pass 1/1"),
        (seen("order", "none", witnessed=False), "vacuous 0/1"),
        (Cell("order", "none"), "vacuous 0/0"),
        (failed("order", "none", "wrong"), "fail 1/1"),
        (seen("order", "none", largest_difference=0.0), "diff 0e+00"),
        (seen("order", "none", num_near_ties=2), "near 2"),
        (seen("order", "none", num_exact_ties=2), "exact 2"),
        (seen("order", "none", "float16", num_near_ties=2), "half 2"),
        (
            seen("order", "none", "float16", subject_errors=(1.0, 2.0, 3), reference_errors=(0.0, 0.0, 3)),
            "fp16 inf",
        ),
        (
            seen("order", "none", "float16", subject_errors=(0.0, 0.0, 3), reference_errors=(0.0, 0.0, 3)),
            "fp16 0.00",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_table_shows_verdict_and_figures(cell, figure):
    assert figure in shown([cell])


@pytest.mark.parametrize("absent", ["diff 0", "near", "exact", "bf16 0", "fp16 0"])
def test_table_shows_no_figure_that_nothing_was_measured_for(absent):
    table, _, _ = shown([seen("order", "none")]).partition("verdict, then")
    assert absent not in table


def test_table_has_a_row_for_each_property_and_a_column_for_each_mode():
    lines = shown([seen("order", "static"), seen("stopping", "none")]).splitlines()
    header = next(line for line in lines if "property" in line and "static" in line)
    order = next(line for line in lines if "order" in line)
    assert header.index("none") < header.index("static") < header.index("continuous")
    assert order.index("-") == header.index("none")
    assert order.index("pass") == header.index("static")


HOSTILE_TEXTS = ["[bold]x[/bold]", "[/]", "[red", "x\\", "[link=y]z[/link]", ":smile:", "{braces}", "[0, 1, 2]"]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_message_is_shown_as_it_is(text):
    assert f"FAIL order × none: {text}" in shown([failed("order", "none", text)])


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_failing_case_is_shown_as_it_is(text):
    scenario = replace(SCENARIO, texts=(text,))
    output = shown([failed("text", "none", "wrong", scenario)])
    assert repr(text) in output
    assert "RequestSpec(prompt_token_ids=(1, 2, 3), max_tokens=4" in output
    assert "dtype float16" in output


def test_failure_of_the_whole_run_is_shown_without_a_case():
    text = shown([failed("order", "none", "over the rate", scenario=None)])
    assert "FAIL order × none: over the rate" in text
    assert "smallest case" not in text


def test_nothing_describes_a_cell_that_has_not_failed():
    assert describe_requests(seen("order", "none")) == ""


def test_failures_are_saved_so_that_they_run_again(tmp_path):
    other = replace(SCENARIO, dtype="float32")
    cells = [
        failed("order", "none", "wrong"),
        failed("order", "static", "wrong", other),
        failed("stopping", "none", "over the rate", scenario=None),
        seen("greedy_tokens", "none"),
    ]
    folder = tmp_path / "deep" / "failures"
    paths = save_failures(cells, folder)
    assert [path.name for path in paths] == ["order-none.json", "order-static.json"]
    assert [Scenario.load(path) for path in paths] == [SCENARIO, other]
    assert sorted(folder.iterdir()) == paths


def test_no_folder_is_made_when_nothing_failed(tmp_path):
    assert save_failures([seen("order", "none")], tmp_path / "failures") == []
    assert list(tmp_path.iterdir()) == []


def report_of(cells):
    """The parsed JSON report; what is no JSON is refused."""
    text = as_json(cells, num_cases=3, seconds=1.26, interrupted=False)
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_json_report_holds_every_cell_and_figure():
    report = report_of([*BUSY_CELLS, failed("order", "none", "wrong"), failed("order", "static", "rate", None)])
    assert (report["num_cases"], report["seconds"], report["interrupted"]) == (3, 1.3, False)
    busy, (bad, rate) = report["cells"][: len(MODES)], report["cells"][len(MODES) :]
    assert [cell["mode"] for cell in busy] == list(MODES)
    assert busy[0]["verdict"] == "pass"
    assert busy[0]["num_half_near_ties"] == 2468
    assert busy[0]["half_errors"]["float16"] == [[1.5, 3.0, 9], [1.0, 2.0, 9]]
    assert (bad["verdict"], bad["failure"]) == ("fail", "wrong")
    assert Scenario.from_json(json.dumps(bad["scenario"])) == SCENARIO
    assert (rate["failure"], rate["scenario"]) == ("rate", None)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_json_report_writes_values_that_are_not_finite_as_text(value):
    (cell,) = report_of([seen("order", "none", largest_difference=value)])["cells"]
    assert float(cell["largest_difference"]) == pytest.approx(value, nan_ok=True)


def test_environment_names_what_bits_depend_on():
    facts = environment()
    assert set(facts) == {"python", "numpy", "torch", "transformers", "instruction_set", "threads"}
    assert all(facts.values())

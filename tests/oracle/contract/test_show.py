"""The card tells every verdict and every failure in words; the JSON keeps to its published schema."""

import json
from io import StringIO

import jsonschema
import pytest
from rich.console import Console

from oracle.contract.constructions import Construction
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.known import KnownDeviation
from oracle.contract.outcome import EngineFailure, EngineReport
from oracle.contract.scenario import EngineScenario
from oracle.contract.show import as_json, save_scenarios, show_card
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest
from oracle.families import FamilySpec

REQUEST = EngineRequest("r0", (1, 2), 3, {"top_k": 2, "temperature": 1.0}, arrival=1, abort_after=2)
SCENARIO = EngineScenario((REQUEST,), {"block_size": 4}, FamilySpec("qwen2"), ((REQUEST,),), "scripted 1.0")
DECLARATION = EngineDeclaration(
    "scripted", "1.0", parameters=("top_k",), knobs={"block_size": [16, 4], "draft": [None, 2]}, families=("qwen2",)
)
NEW = Finding("tokens", Kind.WRONG, "token 4 at 0, and 5 was due", "r0", 0, float("inf"), 0.01, ("top_k",))
OLD = Finding("ends", Kind.WRONG, "[bold]it[/] went on", "r0", 3)


@pytest.fixture
def report():
    """What was seen of an engine with a new failure and a known one, one that was not met, and one way it refused."""
    findings = Findings([NEW, OLD])
    findings.see("tokens", 5)
    findings.asked["top_k"], findings.effects["top_k"] = 4, 2
    way = Construction({"block_size": 4, "draft": None}, "qwen2")
    known = KnownDeviation("ends", "waits for a release")
    return EngineReport(
        DECLARATION,
        findings=findings,
        failures=[EngineFailure(NEW, SCENARIO, 2, is_repeatable=False), EngineFailure(OLD, SCENARIO, known=known)],
        opened=[way],
        refused=[(Construction({"block_size": 16, "draft": 2}, "qwen2"), "no draft")],
        num_runs=3,
        known={known: 1, KnownDeviation("scores", "was mended"): 0},
        interrupted=True,
    )


def schema(root, name):
    """A published schema."""
    content = json.loads((root / "oracle" / "contract" / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(content)
    return content


def test_card_tells_every_verdict_and_failure(report):
    shown = StringIO()
    console = Console(file=shown, width=160)
    show_card(console, report)
    output = shown.getvalue()
    for words in (
        "scripted 1.0, which claims greedy-up-to-ties in float32",
        "FAIL tokens: token 4 at 0, and 5 was due",
        "met 2 times, it did not come again in a fresh engine",
        "KNOWN ends: [bold]it[/] went on",
        "known: waits for a release",
        "not met any more: scores (was mended)",
        "qwen2, block_size 4, after 1 other runs",
        "r0: 2 tokens [1 2] and at most 3 more, top_k 2, temperature 1.0, arrives at 1, is aborted after 2",
        "pairs of knob values that came up: 1 of 4",
        "parameters, shown of asked: top_k 2/4",
        "did not open: qwen2 {'block_size': 16, 'draft': 2}: no draft",
        "interrupted",
    ):
        assert words in output


def test_card_names_no_setting_that_is_as_usual(report):
    report.failures = [
        EngineFailure(NEW, EngineScenario((REQUEST,), {"block_size": 16, "draft": 2}, FamilySpec("qwen2")))
    ]
    shown = StringIO()
    show_card(Console(file=shown, width=160), report)
    assert "  qwen2, draft 2\n" in shown.getvalue()


def test_what_was_not_refused_is_one_line(report):
    finding = Finding("refusals", Kind.WRONG, "top_k -5 was not refused")
    report.failures = [EngineFailure(finding, SCENARIO)]
    shown = StringIO()
    show_card(Console(file=shown, width=160), report)
    assert "top_k -5 was not refused" in shown.getvalue()
    assert "block_size 4" not in shown.getvalue()


def test_report_keeps_to_its_schema(report, pytestconfig):
    data = json.loads(as_json(report))
    jsonschema.validate(data, schema(pytestconfig.rootpath, "report"))
    assert data["failures"][0]["gap"] == "Infinity"
    assert data["verdict"] == "fail"


@pytest.mark.parametrize("change", [{"verdict": "fine"}, {"surprise": 1}, {"num_runs": -1}, {"checks": [{}]}])
def test_schema_of_reports_refuses_others(report, pytestconfig, change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(as_json(report)) | change, schema(pytestconfig.rootpath, "report"))


@pytest.mark.parametrize("family", [None, FamilySpec("gemma2")])
def test_scenario_keeps_to_its_schema(pytestconfig, family):
    data = json.loads(EngineScenario((REQUEST,), {"a": None}, family, ((REQUEST,),), "x").to_json())
    jsonschema.validate(data, schema(pytestconfig.rootpath, "scenario"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data | {"engine_scenario": 2}, schema(pytestconfig.rootpath, "scenario"))


def test_scenarios_of_new_failures_are_saved_under_names_of_their_own(report, tmp_path):
    report.failures.append(EngineFailure(NEW, EngineScenario((REQUEST,))))
    paths = save_scenarios(report, tmp_path / "failures")
    assert [path.name for path in paths] == ["scripted-tokens-top_k.json", "scripted-tokens-top_k-2.json"]
    assert [EngineScenario.load(path) for path in paths] == [SCENARIO, EngineScenario((REQUEST,))]


def test_nothing_is_saved_where_nothing_failed(tmp_path):
    assert save_scenarios(EngineReport(DECLARATION), tmp_path / "failures") == []
    assert not (tmp_path / "failures").exists()

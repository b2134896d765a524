"""An engine is put in the dock from the command line, with the adapter that the guide shows."""

import json
import re
import sys

import pytest

from oracle.commands.dock import knob, parameter
from oracle.commands.shared import EXIT_FAIL, EXIT_USAGE
from oracle.contract.recording import Recording
from oracle.contract.scenario import EngineScenario

pytestmark = pytest.mark.without_shape_checks

CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
ZEROS = "prompt = torch.tensor([[abs(own) % 9 for own in request.prompt_token_ids] or [1]])"
FEW = ("--engine", "my_engine:MyEngine", "--constructions", 1, "--runs", 2)


@pytest.fixture(scope="module")
def guide(request):
    """The adapter of the guide, as its reader would copy it."""
    page = request.config.rootpath / "notes" / "put-your-engine-in-the-dock.md"
    return CODE.findall(page.read_text(encoding="utf-8"))[0]


@pytest.fixture
def engine_file(guide, tmp_path, monkeypatch):
    """Writes the guide's adapter, perhaps changed, into the folder that commands run in."""
    monkeypatch.chdir(tmp_path)

    def write(change=lambda source: source):
        (tmp_path / "my_engine.py").write_text(change(guide), encoding="utf-8")
        monkeypatch.delitem(sys.modules, "my_engine", raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))

    return write


def test_adapter_of_the_guide_passes(run, engine_file, tmp_path):
    engine_file()
    report = tmp_path / "report.json"
    checks = "alive,form,tokens,ends,repeat,refusals"
    status, output, _ = run("check", *FEW, "--checks", checks, "--json", report, "--record", "runs.json")
    rows = {row["check"]: row["verdict"] for row in json.loads(report.read_text("utf-8"))["checks"]}
    assert {rows[name] for name in checks.split(",")} == {"pass"}
    assert "my engine, which claims greedy-up-to-ties in float32" in output
    assert status != EXIT_FAIL
    assert Recording.load(tmp_path / "runs.json").run_by_key


def test_engine_that_emits_one_token_too_many_fails_and_its_case_runs_again(run, engine_file, tmp_path):
    engine_file(lambda source: source.replace("=request.max_tokens,", "=request.max_tokens + 1,"))
    status, output, _ = run("check", *FEW, "--checks", "ends")
    assert status == EXIT_FAIL
    assert "tokens, and at most" in output
    case = next((tmp_path / "oracle-failures").iterdir())
    assert len(json.loads(case.read_text("utf-8"))["requests"]) == 1
    status, output, _ = run("replay", case, "--engine", "my_engine:MyEngine")
    assert status == EXIT_FAIL
    assert "wrong    ends, request r" in output


def test_recording_of_another_build_is_held_against_the_new_one(run, engine_file):
    engine_file()
    run("check", *FEW, "--record", "old.json")
    engine_file(lambda source: source.replace("tolist()", "flip(0).tolist()"))
    status, output, _ = run("check", *FEW, "--against", "old.json", "--reference", "none", "--checks", "agreement")
    assert status == EXIT_FAIL
    assert "FAIL agreement: token" in output


@pytest.mark.parametrize("is_right", [True, False])
def test_case_of_a_refusal_runs_what_is_to_be_refused_again(run, engine_file, tmp_path, is_right):
    if is_right:
        engine_file()
    else:
        engine_file(lambda source: source.replace("prompt = torch.tensor([request.prompt_token_ids])", ZEROS))
    case = tmp_path / "case.json"
    scenario = EngineScenario((), {"use_cache": True}, engine="x", check="refusals")
    case.write_text(scenario.to_json(), encoding="utf-8")
    status, output, _ = run("replay", case, "--engine", "my_engine:MyEngine")
    assert "judged: refusals 4" in output
    assert (status == EXIT_FAIL) is not is_right
    assert ("an empty prompt was not refused" in output) is not is_right


def test_case_of_an_engine_asks_for_the_engine(run, tmp_path):
    case = tmp_path / "case.json"
    case.write_text(EngineScenario((), engine="x").to_json(), encoding="utf-8")
    status, _, errors = run("replay", case)
    assert status == EXIT_USAGE
    assert "name the engine with --engine" in errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engine", "none:such", "--properties", "bits"), "--properties is about the modes"),
        (("--engine", "unheard-of"), "unheard-of"),
        (("--engine", "my_engine:MyEngine", "--checks", "luck"), "'luck' is unknown"),
        (("--engine", "my_engine:MyEngine", "--knob", "block_size"), "--knob block_size is not NAME=VALUE"),
        (("--engine", "my_engine:MyEngine", "--knob", "size=3"), "no setting 'size'"),
        (("--engine", "my_engine:MyEngine", "--parameter", "luck"), "no parameter 'luck'"),
    ],
)
def test_check_refuses_what_does_not_fit_an_engine(run, engine_file, options, words):
    engine_file()
    status, _, errors = run("check", *options)
    assert status == EXIT_USAGE
    assert words in errors


def test_check_passes_with_a_witness_as_reference(run, engine_file):
    engine_file()
    status, output, _ = run("check", *FEW, "--reference", "witness", "--checks", "tokens")
    assert "tokens          pass" in output
    assert status != EXIT_FAIL


@pytest.mark.parametrize(
    ("text", "value"), [("a=3", 3), ("a=null", None), ("a=true", True), ("a=batch", "batch"), ("a=x=y", "x=y")]
)
def test_value_of_a_setting_is_json_or_a_word(text, value):
    assert knob(text) == ("a", value)


@pytest.mark.parametrize(("text", "value"), [("a", None), ("a=3", 3), ("a=[1, 2]", [1, 2])])
def test_parameter_may_have_a_value(text, value):
    assert parameter(text) == ("a", value)

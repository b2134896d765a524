"""A saved case runs again, and ends as its properties do."""

import json

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, EXIT_USAGE
from oracle.engine_spec import StepScript
from oracle.explain.explanation import Explanation
from oracle.faults import FAULTS
from oracle.observation import Observation
from oracle.properties import PROPERTIES
from oracle.scenario import RequestSpec, Scenario

SCENARIO = Scenario(requests=(RequestSpec((1, 2, 3), max_tokens=3), RequestSpec((7, 8), max_tokens=2, cuts=(1,))))


def saved(scenario, folder):
    """A scenario in a file."""
    path = folder / "case.json"
    path.write_text(scenario.to_json(), encoding="utf-8")
    return path


def test_replay_passes_a_right_case_on_every_property_of_its_dtype(run, tmp_path):
    status, output, _ = run("replay", saved(SCENARIO, tmp_path))
    assert status == EXIT_PASS
    places = {line.split(maxsplit=1)[1] for line in output.splitlines()}
    assert places == {f"{prop.name} × {mode}" for prop in PROPERTIES if "float32" in prop.dtypes for mode in prop.modes}


def test_replay_fails_on_a_case_that_catches_a_fault(run, tmp_path):
    with FAULTS["causal_mask_one_ahead"].planted():
        status, output, _ = run("replay", saved(SCENARIO, tmp_path))
    assert status == EXIT_FAIL
    assert "fail     reference_bits × none: none, request 0, all rows: first divergence in row 0" in output


def test_replay_fails_on_a_case_that_makes_the_subject_raise(run, only, prop, tmp_path):
    def raises(case, mode):
        del case
        raise AttributeError(mode)

    only(prop("bad", raises, modes=("none",)), prop("good", modes=("none",)))
    status, output, _ = run("replay", saved(SCENARIO, tmp_path))
    assert status == EXIT_FAIL
    assert output.splitlines() == ["fail     bad × none: AttributeError: none", "pass     good × none"]


def test_replay_tells_what_a_case_does_not_witness(run, only, prop, tmp_path):
    def says_nothing(case, mode):
        del case, mode
        return Observation(witnessed=False)

    only(prop("empty", says_nothing, modes=("none",)))
    status, output, _ = run("replay", saved(SCENARIO, tmp_path))
    assert (status, output.strip()) == (EXIT_PASS, "vacuous  empty × none")


def test_replay_needs_a_model_for_a_case_that_generates_none(run, only, prop, tmp_path):
    only(prop("good", modes=("none",)), prop("breaks", modes=("none",), is_generated_only=True))
    path = saved(Scenario(requests=SCENARIO.requests, checkpoint=None), tmp_path)
    status, _, errors = run("replay", path)
    assert status == EXIT_USAGE
    assert "--model" in errors
    status, output, _ = run("replay", path, "--model", cached_checkpoint(CheckpointSpec()))
    assert (status, output.strip()) == (EXIT_PASS, "pass     good × none")


def test_replay_refuses_a_model_for_a_case_that_generates_its_own(run, tmp_path):
    status, _, errors = run("replay", saved(SCENARIO, tmp_path), "--model", tmp_path)
    assert status == EXIT_USAGE
    assert "leave --model away" in errors


@pytest.mark.parametrize("content", ["", "[]", '{"version": 99, "requests": [], "checkpoint": null}'])
def test_replay_refuses_a_file_that_holds_no_scenario(run, tmp_path, content):
    path = tmp_path / "case.json"
    path.write_text(content, encoding="utf-8")
    status, _, errors = run("replay", path)
    assert status == EXIT_USAGE
    assert "scenario" in errors


def test_replay_writes_the_page_and_the_trace_of_what_it_explains(run, tmp_path):
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    with FAULTS["slot_of_newest_token_off_by_one"].planted():
        status, output, _ = run("replay", saved(SCENARIO, tmp_path), "--page", page, "--trace", trace)
    assert status == EXIT_FAIL
    assert "blame:" in output
    text = page.read_text("utf-8")
    assert "to blame: cache, reading and writing." in text
    assert "--explain" in text
    names = {event["name"] for event in json.loads(trace.read_text("utf-8"))["traceEvents"]}
    assert {"prefill 3", "decode 1", "first differing read", "blocks"} <= names


SYMBOLIC = Scenario(
    requests=(RequestSpec((1, 2, 3), max_tokens=4, ignore_eos=True),),
    checkpoint=None,
    is_symbolic=True,
    script=(StepScript(), StepScript(recompute=(0,))),
)


def test_replay_says_why_a_case_fails_and_writes_it(run, tmp_path):
    path = saved(SYMBOLIC, tmp_path)
    with FAULTS["outputs_lost_on_preemption"].planted():
        status, output, _ = run("replay", path, "--explain", "--explanation", tmp_path / "why.json")
    assert status == EXIT_FAIL
    assert output.startswith("blame: scheduler: preemption of request 0")
    assert f"python -m oracle replay {path} --explain" in output
    explanation = Explanation.from_data(json.loads((tmp_path / "why.json").read_text(encoding="utf-8")))
    assert "refinfer/scheduler/queues.py" in explanation.blame.sources


def test_replay_has_nothing_to_explain_where_a_case_passes(run, tmp_path):
    status, output, _ = run("replay", saved(SYMBOLIC, tmp_path), "--explain")
    assert status == EXIT_PASS
    assert "nothing to explain" in output


def test_replay_plants_a_bug_and_says_so_in_the_command_that_runs_it_again(run, tmp_path):
    path = saved(SCENARIO, tmp_path)
    assert run("replay", path, "--fault", "causal_mask_one_ahead")[0] == EXIT_FAIL
    status, output, _ = run("replay", path, "--fault", "causal_mask_one_ahead", "--explain")
    assert status == EXIT_FAIL
    assert f"replay {path} --fault causal_mask_one_ahead --explain" in output
    assert run("replay", path)[0] == EXIT_PASS


def test_replay_plants_no_bug_of_refinfer_in_an_engine(run, request):
    case = min((request.config.rootpath / "notes" / "verdicts" / "cases").glob("*.json"))
    status, _, errors = run("replay", case, "--fault", "norm_epsilon")
    assert status == EXIT_USAGE
    assert "leave --fault away" in errors

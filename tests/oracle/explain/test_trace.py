"""A trace keeps to the format, its time never goes back, and it tells what the explanation tells."""

import json
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.explain.clues import Place
from oracle.explain.trace import MICROSECONDS_PER_STEP, trace_of, write_trace

FEW = settings(max_examples=max(5, settings().max_examples // 5))


@pytest.fixture(scope="module")
def validator(pytestconfig):
    """Holds data to the format."""
    path = pytestconfig.rootpath / "oracle" / "explain" / "trace_event.schema.json"
    schema = json.loads(path.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def of_phase(trace, phase):
    """The events of one kind."""
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def track_names(trace):
    """The name of each track."""
    return {event["tid"]: event["args"]["name"] for event in of_phase(trace, "M") if event["name"] == "thread_name"}


@FEW
@given(st.data())
def test_trace_keeps_to_the_format_and_its_time_never_goes_back(explanations, validator, data):
    trace = json.loads(json.dumps(trace_of(data.draw(explanations))))
    validator.validate(trace)
    times = [event["ts"] for event in trace["traceEvents"] if event["ph"] != "M"]
    assert times == sorted(times)


@FEW
@given(st.data())
def test_counters_of_a_trace_are_the_explanations(explanations, data):
    explanation = data.draw(explanations)
    counts = [
        {
            name: number
            for name, number in (
                ("used", step.num_used_blocks),
                ("cached", step.num_cached_blocks),
                ("free", step.num_free_blocks),
            )
            if number is not None
        }
        for step in explanation.steps
    ]
    assert [event["args"] for event in of_phase(trace_of(explanation), "C")] == [own for own in counts if own]


@FEW
@given(st.data())
def test_slices_of_a_trace_are_the_rows_of_all_steps(explanations, data):
    explanation = data.draw(explanations)
    slices = [event for event in of_phase(trace_of(explanation), "X") if event["cat"] != "step"]
    keys = {(step.number, row.request, row.sample) for step in explanation.steps for row in step.rows}
    assert len(slices) == len(keys)
    assert all(own["dur"] == MICROSECONDS_PER_STEP for own in slices)


def test_trace_has_a_track_for_the_steps_and_one_for_each_sample(whole):
    names = track_names(trace_of(whole))
    assert list(names.values()) == ["steps", "request 0, sample 0", "request 0, sample 1", "request 1"]
    assert 0 not in names, "viewers take track 0 for the track with the process's number"


def test_trace_tells_what_ran_and_what_befell_whom(whole):
    trace = trace_of(whole)
    names = track_names(trace)
    told = [(names[event["tid"]], event["ts"], event["name"]) for event in of_phase(trace, "i") + of_phase(trace, "X")]
    for own in (
        ("request 0, sample 0", 0, "prefill 3"),
        ("request 0, sample 0", 1000, "preempted (swap)"),
        ("request 0, sample 0", 2000, "swapped in"),
        ("request 0, sample 0", 2000, "decode 3"),
        ("request 0, sample 1", 2000, "prefill 1"),
        ("request 0, sample 1", 3000, "aborted"),
        ("request 0, sample 0", 3999, "finished (length)"),
        ("request 1", 0, "arrived"),
        ("request 0, sample 0", 0, "first differing write"),
        ("request 0, sample 0", 2000, "first differing read"),
        ("request 0, sample 0", 2999, "first output that parts"),
        ("steps", 2000, "step 2"),
    ):
        assert own in told


def test_trace_says_that_its_time_is_synthetic(whole):
    other = trace_of(whole)["otherData"]
    assert "one step is 1 ms" in other["time"]
    assert other["blame"] == whole.blame.sentence
    assert other["command"] == whole.command


def test_trace_of_an_explanation_without_steps_says_so(bare, validator):
    trace = trace_of(bare)
    validator.validate(trace)
    assert "none" in trace["otherData"]["steps"]


def test_clue_outside_every_step_leaves_no_mark(whole):
    token = replace(whole.token, place=Place(None, 0, 0, 4))
    marks = [event["name"] for event in of_phase(trace_of(replace(whole, token=token)), "i") if event["cat"] == "clue"]
    assert marks == ["first differing write", "first differing read"]


def test_trace_is_written_as_json(whole, tmp_path):
    write_trace(whole, tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text("utf-8")) == trace_of(whole)


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "name": "a", "ts": 0, "pid": 1, "tid": 1},
        {"ph": "X", "name": "a", "ts": -1, "dur": 1, "pid": 1, "tid": 1},
        {"ph": "C", "name": "a", "ts": 0, "pid": 1, "tid": 1, "args": {"used": "3"}},
        {"ph": "i", "name": "a", "ts": 0, "pid": 1, "tid": 1, "s": "thread"},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {}},
        {"ph": "b", "name": "a", "ts": 0, "pid": 1, "tid": 1},
        {"ph": "?", "name": "a", "ts": 0, "pid": 1, "tid": 1},
        {"ph": "B", "ts": 0, "pid": 1, "tid": 1},
        {"ph": "i", "name": "a", "ts": 0, "tid": 1},
    ],
)
def test_schema_refuses_what_a_viewer_cannot_read(validator, event):
    assert not validator.is_valid({"traceEvents": [event]})

"""Outputs that mean nothing are found, whatever an engine sends; what means something passes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from oracle.contract.findings import Findings, Kind
from oracle.contract.form_check import check_form
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

pytestmark = pytest.mark.without_shape_checks  # an engine may send anything

VOCAB_SIZE = 8
INF = math.inf
ONE = EngineRequest("a", (1, 2), 3)


def row_of(_):
    return [0.0] * VOCAB_SIZE


@pytest.fixture
def found(trial_of):
    """Gives the check, the blame and whether the request of each finding can still be judged."""

    def find(requests, outputs, **fields):
        findings = Findings()
        trial = trial_of(requests, outputs, row_of, again=fields.pop("again", outputs), **fields)
        broken = check_form(trial, findings)
        assert all(each.check == "form" and each.kind is Kind.WRONG for each in findings.found)
        return [(each.blame[0], each.message) for each in findings.found], broken, findings

    return find


def blames(result):
    return {blame for blame, _ in result[0]}


@pytest.mark.parametrize(
    ("parameters", "data"),
    [
        ({}, {"samples": [{"token_ids": [3], "finish_reason": "stop"}]}),
        ({}, {"samples": [{"token_ids": [np.int64(3), 0]}]}),
        (
            {"logprobs": 1},
            {"samples": [{"token_ids": [3], "logprobs": [-0.5], "top_logprobs": [{"3": np.float32(-1), "1": -INF}]}]},
        ),
        ({"prompt_logprobs": 0}, {"samples": [{"token_ids": [3]}], "prompt_logprobs": [None, {"2": -0.1}]}),
        ({"logits": True}, {"samples": [{"token_ids": [3], "logits": [[0.0, -INF, 1, 2, 3, 4, 5, 6]]}]}),
        ({"n": 2}, {"samples": [{"token_ids": [3]}, {"token_ids": [4]}]}),
    ],
    ids=["plain", "numpy", "logprobs", "prompt_logprobs", "logits", "n"],
)
def test_output_of_the_right_form_passes(found, parameters, data):
    request = EngineRequest("a", (1, 2), 3, parameters)
    faults, broken, findings = found([request], [EngineOutput.from_data({"request_id": "a", **data})])
    assert (faults, broken) == ([], set())
    assert findings.num_seen["form"] == 2


def test_aborted_request_may_give_nothing(found, output):
    assert blames(found([replace(ONE, abort_after=1)], [output("a", reason="abort")])) == set()


def of_samples(*samples):
    return {"samples": list(samples)}


def of_prompt(*entries):
    return {"samples": [{"token_ids": [3]}], "prompt_logprobs": list(entries)}


@pytest.mark.parametrize(
    ("parameters", "data", "blame"),
    [
        ({}, {"refused": "too long"}, "refused"),
        ({}, {}, "n"),
        ({"n": 2}, of_samples({"token_ids": [3]}), "n"),
        ({}, of_samples({"token_ids": [3]}, {"token_ids": [3]}), "n"),
        ({}, of_samples({"token_ids": [VOCAB_SIZE]}), "vocabulary"),
        ({}, of_samples({"token_ids": [3, -1]}), "vocabulary"),
        ({}, of_samples({"token_ids": [3.0]}), "token_ids"),
        ({}, of_samples({"token_ids": ["3"]}), "token_ids"),
        ({}, of_samples({"token_ids": [None]}), "token_ids"),
        ({}, of_samples({"token_ids": [3], "finish_reason": "eos"}), "finish_reason"),
        ({}, of_samples({"token_ids": [], "finish_reason": "stop"}), "empty"),
        ({"logprobs": 0}, of_samples({"token_ids": [3]}), "logprobs"),
        ({"logprobs": 0}, of_samples({"token_ids": [3, 4], "logprobs": [-0.5]}), "logprobs"),
        ({"logprobs": 1}, of_samples({"token_ids": [3], "logprobs": [-0.5]}), "top_logprobs"),
        ({"logits": True}, of_samples({"token_ids": [3]}), "logits"),
        ({}, of_samples({"token_ids": [3], "logits": [[0.0] * 7]}), "logits"),
        ({}, of_samples({"token_ids": [3], "logits": [[math.nan] * 8]}), "logits"),
        ({}, of_samples({"token_ids": [3], "logits": [[None] * 8]}), "logits"),
        ({}, of_samples({"token_ids": [3], "logprobs": [math.nan]}), "logprobs"),
        ({}, of_samples({"token_ids": [3], "logprobs": [0.001]}), "logprobs"),
        ({}, of_samples({"token_ids": [3], "logprobs": [-INF]}), "logprobs"),
        ({}, of_samples({"token_ids": [3], "logprobs": [None]}), "logprobs"),
        ({}, of_samples({"token_ids": [3], "logprobs": ["-1"]}), "logprobs"),
        ({}, of_samples({"token_ids": [3], "top_logprobs": [{"3": INF}]}), "top_logprobs"),
        ({"prompt_logprobs": 1}, of_samples({"token_ids": [3]}), "prompt_logprobs"),
        ({"prompt_logprobs": 1}, of_prompt(None), "prompt_logprobs"),
        ({"prompt_logprobs": 1}, of_prompt(None, None), "prompt_logprobs"),
        ({"prompt_logprobs": 1}, of_prompt(None, {"2": math.nan}), "prompt_logprobs"),
    ],
)
def test_output_of_no_form_is_found_and_judged_no_further(found, parameters, data, blame):
    request = EngineRequest("a", (1, 2), 3, parameters)
    result = found([request], [EngineOutput.from_data({"request_id": "a", **data})])
    assert [each for each, _ in result[0]] == [blame, blame]
    assert result[1] == {("together", "a"), ("again", "a")}


def test_scores_need_not_come_where_the_engine_does_not_show_them(found):
    request = EngineRequest("a", (1, 2), 3, {"logprobs": 2})
    assert blames(found([request], [EngineOutput("a", (EngineSample((3,)),))], capabilities=())) == set()


def test_output_may_be_empty_where_stop_tokens_are_left_out(found):
    outputs = [EngineOutput("a", (EngineSample((), "stop"),))]
    assert blames(found([ONE], outputs, shows_stop_token=False)) == set()


TWO = (ONE, EngineRequest("b", (1,), 3))


@pytest.mark.parametrize(
    ("given", "blame", "broken"),
    [
        (["a", "b"], set(), set()),
        (["b", "a"], {"order"}, set()),
        (["a"], {"missing"}, {"b"}),
        ([], {"missing"}, {"a", "b"}),
        (["a", "b", "b"], {"duplicate"}, {"b"}),
        (["a", "b", "c"], {"unknown"}, set()),
        (["a", "c"], {"missing"}, {"b"}),
        (["a", None], {"missing"}, {"b"}),
        (["a", 5, None], {"missing"}, {"b"}),
        (["a", "b", ["b"], {}], {"unknown"}, set()),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "-".join(sorted(value)) or "none",
)
def test_outputs_are_those_of_the_requests(found, given, blame, broken):
    outputs = [EngineOutput.from_data({"request_id": name, **of_samples({"token_ids": [3]})}) for name in given]
    result = found(TWO, outputs)
    assert blames(result) == blame
    assert result[1] == {(run, name) for run in ("together", "again") for name in broken}


def test_each_run_is_looked_at(found, output):
    right, wrong = output("a", 3), output("a", 99)
    for run in ("again", "backwards", "alone"):
        value = {"a": wrong} if run == "alone" else [wrong]
        (fault,), broken, _ = found([ONE], [right], **{run: value})
        assert fault[1].startswith(f"run {'a alone' if run == 'alone' else 'reversed' if run == 'backwards' else run}:")
        assert len(broken) == 1


def test_vocabulary_of_a_model_that_is_not_known_has_no_end(trial_of, output):
    findings = Findings()
    check_form(trial_of([ONE], [output("a", 10**6)], None), findings)
    assert findings.found == []

"""Requests that end where they should pass, and each way of ending elsewhere is found."""

import pytest

from oracle.contract.end_check import check_ends
from oracle.contract.findings import Findings, Kind
from oracle.contract.token_checks import answers
from oracle.engines.messages import EngineRequest

ROW = [0.0, 1.0, 3.0, 2.0, -1.0, 0.5, -3.0, -4.0]
"""2 is the best token; 6 and 7 end a request, and are far from being chosen."""

ENDING = [0.0, 1.0, 2.0, 2.0, -1.0, 0.5, 9.0, -4.0]
"""6 is the best token, and ends a request."""


@pytest.fixture
def faults(trial_of, output):
    """Gives what is to blame for the end of one request, or nothing."""

    def find(parameters, token_ids, reason=None, *, row=ROW, max_tokens=4, abort_after=None, stop=None, **fields):
        request = EngineRequest("a", (1,), max_tokens, parameters, abort_after=abort_after)
        given = output("a", *token_ids, reason=reason, stop_token_id=stop)
        trial = trial_of([request], [given], lambda _: row, **fields)
        findings = Findings()
        check_ends(trial, answers(trial, set()), findings)
        assert findings.num_seen["ends"] == 2
        assert all((each.check, each.kind) == ("ends", Kind.WRONG) for each in findings.found)
        assert len(findings.found) in (0, 2)
        return [each.blame[0] for each in findings.found[:1]]

    return find


@pytest.mark.parametrize(
    ("parameters", "token_ids", "reason"),
    [
        ({}, (2, 2, 2, 2), "length"),
        ({}, (2, 2, 2, 2), None),
        ({}, (2, 6), "stop"),
        ({}, (7,), None),
        ({}, (2, 2, 2, 6), "stop"),
        ({}, (2, 2, 2, 6), "length"),
        ({"stop_token_ids": [3]}, (2, 3), "stop"),
        ({"ignore_eos": True}, (6, 7, 6, 2), "length"),
        ({"ignore_eos": True, "stop_token_ids": [7]}, (6, 7), "stop"),
        ({"min_tokens": 2}, (2, 2, 6), "stop"),
        ({"min_tokens": 2}, (6, 2, 2, 2), "length"),
        ({"choices": [[2, 3]]}, (2, 3), "stop"),
        ({"choices": [[2, 3]]}, (2, 3, 6), "stop"),
        ({"choices": [[2, 3, 2, 3]]}, (2, 3, 2, 3), "stop"),
        ({"choices": [[2, 3, 2, 3]], "ignore_eos": True}, (2, 3, 2, 3), "stop"),
    ],
    ids=str,
)
def test_request_that_ends_where_it_should_passes(faults, parameters, token_ids, reason):
    assert faults(parameters, token_ids, reason) == []


@pytest.mark.parametrize(
    ("parameters", "token_ids", "reason", "blame"),
    [
        ({}, (2,) * 5, "length", "max_tokens"),
        ({}, (6, 2), "length", "eos"),
        ({}, (2, 6, 6), "stop", "eos"),
        ({"stop_token_ids": [3]}, (3, 2), None, "stop_token_ids"),
        ({"min_tokens": 1}, (2, 6, 2, 2), None, "eos"),
        ({}, (2, 2), "stop", "early"),
        ({}, (2, 2), "length", "early"),
        ({"ignore_eos": True}, (2, 6), "stop", "early"),
        ({"min_tokens": 3}, (2, 6), "stop", "min_tokens"),
        ({"choices": [[2, 3]]}, (2,), "stop", "early"),
        ({}, (2, 2, 2, 2), "stop", "finish_reason"),
        ({}, (2, 6), "length", "finish_reason"),
        ({}, (2, 2), "abort", "abort"),
        ({}, (2, 2, 2, 2), "abort", "abort"),
    ],
    ids=str,
)
def test_request_that_ends_elsewhere_is_found(faults, parameters, token_ids, reason, blame):
    assert faults(parameters, token_ids, reason) == [blame]


@pytest.mark.parametrize(
    ("token_ids", "reason", "blame"),
    [
        ((), "abort", []),
        ((2,), None, []),
        ((2, 2, 2, 2), "length", []),
        ((2,) * 5, None, ["max_tokens"]),
        ((6, 2), None, ["eos"]),
    ],
)
def test_aborted_request_may_have_come_to_any_place(faults, token_ids, reason, blame):
    assert faults({}, token_ids, reason, abort_after=2) == blame


@pytest.mark.parametrize(
    ("row", "token_ids", "reason", "stop", "blame"),
    [
        (ENDING, (2, 2), "stop", None, []),
        (ENDING, (2, 2), "stop", 6, []),
        (ENDING, (), "stop", 6, []),
        (ENDING, (2, 2), None, None, []),
        (ENDING, (2, 2, 2, 2), "length", None, []),
        (ENDING, (2, 2), "stop", 7, ["early"]),
        (ENDING, (2, 2), "stop", 5, ["stop token"]),
        (ENDING, (2, 2), "length", None, ["finish_reason"]),
        (ENDING, (2, 6), "stop", None, ["stop token"]),
        (ROW, (2, 2), "stop", None, ["early"]),
        (ROW, (2, 2), "stop", 6, ["early"]),
        (ROW, (2, 2, 2, 2), "stop", None, ["finish_reason"]),
    ],
)
def test_stop_token_that_is_left_out_has_to_be_due(faults, row, token_ids, reason, stop, blame):
    assert faults({}, token_ids, reason, row=row, stop=stop, shows_stop_token=False) == blame


def test_stop_token_that_is_left_out_is_judged_up_to_rounding(faults):
    near, far = ([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0 - gap, 0.0] for gap in (0.015, 0.025))
    assert faults({}, (2,), row=near, shows_stop_token=False) == []
    assert faults({}, (2,), row=far, shows_stop_token=False) == ["early"]


def test_drawn_end_may_be_any_that_the_filters_keep(faults):
    assert faults({"temperature": 1.0}, (2,), shows_stop_token=False) == []
    assert faults({"temperature": 1.0, "top_k": 2}, (2,), shows_stop_token=False) == ["early"]


def test_token_that_says_stop_where_stop_tokens_are_shown_has_to_be_one(faults):
    """It would have been due next, but the engine declares that it shows it."""
    assert faults({}, (2, 2, 2, 2), "stop", row=ENDING) == ["finish_reason"]

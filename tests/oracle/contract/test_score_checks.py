"""The reference's scores pass, up to rounding; a score that is off, absent or another's is found."""

import numpy as np
import pytest

from oracle.contract.findings import Findings, Kind
from oracle.contract.score_checks import check_prompt_scores, check_scores, expected_logprobs
from oracle.contract.token_checks import answers
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

BOUND = 0.01
ROW = np.log([0.5, 0.3, 0.15, 0.05])
"""Logits that are log-probabilities already."""


@pytest.fixture
def faults(trial_of):
    """Gives what is to blame for the scores of one answer, or nothing."""

    def find(parameters, *, token_ids=(0,), row=ROW, prompt=(1,), seen=None, scores_of="model", **scores):
        request = EngineRequest("a", prompt, 4, parameters)
        given = EngineOutput("a", (EngineSample(token_ids, **scores),))
        trial = trial_of([request], [given], lambda _: list(row), eos_token_ids=(), scores_of=scores_of)
        findings = Findings()
        check_scores(answers(trial, set()), findings)
        assert all((each.check, each.kind) == ("scores", Kind.WRONG) for each in findings.found)
        if seen is not None:
            assert findings.num_seen["scores"] == 2 * seen
        return [(each.blame[0], each.place) for each in findings.found[: len(findings.found) // 2]]

    return find


def test_right_scores_pass(faults):
    scores = {
        "logprobs": (float(ROW[0]), float(ROW[2])),
        "top_logprobs": ({0: float(ROW[0])}, {0: float(ROW[0]), 2: float(ROW[2])}),
        "logits": (tuple(map(float, ROW)),) * 2,
    }
    assert faults({"logprobs": 1}, token_ids=(0, 2), seen=6, **scores) == []


@pytest.mark.parametrize(("error", "found"), [(0.019, []), (-0.019, []), (0.021, [("logprobs", 0)])])
def test_logprob_may_be_off_by_what_rounding_does_to_two_logits(faults, error, found):
    assert faults({"logprobs": 0}, logprobs=(float(ROW[0]) + error,)) == found


@pytest.mark.parametrize(("error", "found"), [(0.009, []), (-0.011, [("logits", 0)]), (np.inf, [("logits", 0)])])
def test_logit_may_be_off_by_what_rounding_does_to_one(faults, error, found):
    row = ROW.copy()
    row[3] += error
    assert faults({"logits": True}, logits=(tuple(map(float, row)),)) == found


def test_only_the_first_wrong_score_of_an_answer_is_told(faults):
    right, wrong = float(ROW[0]), float(ROW[1])
    assert faults({"logprobs": 0}, token_ids=(0, 0, 0), logprobs=(right, wrong, wrong)) == [("logprobs", 1)]


def listed(*token_ids, **changed):
    return ({token_id: changed.get(f"of{token_id}", float(ROW[token_id])) for token_id in token_ids},)


@pytest.mark.parametrize(
    ("wanted", "entry", "is_right"),
    [
        (2, listed(0, 1), True),
        (2, listed(1, 0, 3), True),
        (0, listed(0), True),
        (0, listed(), True),
        (9, listed(0, 1, 2, 3), True),
        (2, listed(0), False),
        (2, listed(), False),
        (2, listed(0, 2), False),
        (2, listed(0, 3), False),
        (1, listed(1), False),
        (2, listed(0, 1, of1=-1.3), False),
        (2, listed(0, 1, of1=-np.inf), False),
        (2, listed(0, 1, of1=-1e9), False),
        (2, ({0: float(ROW[0]), 1: float(ROW[1]), 9: -3.0},), False),
        (2, ({0: float(ROW[0]), 1: float(ROW[1]), -1: -3.0},), False),
    ],
    ids=str,
)
def test_list_has_the_likeliest_tokens_with_their_scores(faults, wanted, entry, is_right):
    found = faults({"logprobs": wanted}, top_logprobs=entry)
    assert found == ([] if is_right else [("top_logprobs", 0)])


def test_either_of_two_tokens_that_are_nearly_tied_may_be_listed(faults):
    """Also where an unlikely token that was drawn stands beside them in the list."""
    row = np.log([0.5, 0.22, 0.219, 0.061])
    entry = ({0: float(row[0]), 2: float(row[2]), 3: float(row[3])},)
    assert faults({"logprobs": 2, "temperature": 1.0}, token_ids=(3,), row=row, top_logprobs=entry) == []
    far = np.log([0.5, 0.23, 0.209, 0.061])
    entry = ({0: float(far[0]), 2: float(far[2]), 3: float(far[3])},)
    assert faults({"logprobs": 2, "temperature": 1.0}, token_ids=(3,), row=far, top_logprobs=entry) != []


TEMPERED = np.log(np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365)
"""At temperature 1/2 shares go as their squares."""


@pytest.mark.parametrize(
    ("scores_of", "parameters", "logprob"),
    [
        ("model", {"temperature": 0.5, "logit_bias": [[0, 5.0]], "top_k": 1}, ROW[0]),
        ("penalised", {"temperature": 0.5, "top_k": 1}, ROW[0]),
        ("penalised", {"temperature": 0.5, "allowed_token_ids": [0, 1]}, np.log(0.625)),
        ("processed", {"temperature": 0.5}, TEMPERED[0]),
        ("processed", {"temperature": 1.0, "top_k": 2}, np.log(0.625)),
        ("processed", {"temperature": 1.0, "top_p": 0.7}, np.log(0.625)),
        ("processed", {"allowed_token_ids": [0, 1]}, np.log(0.625)),
        ("processed", {}, ROW[0]),
    ],
    ids=str,
)
def test_scores_are_of_the_distribution_that_the_engine_declares(faults, scores_of, parameters, logprob):
    parameters = {**parameters, "logprobs": 0}
    assert faults(parameters, scores_of=scores_of, logprobs=(float(logprob),)) == []
    assert faults(parameters, scores_of=scores_of, logprobs=(float(logprob) - 0.1,)) == [("logprobs", 0)]


@pytest.mark.parametrize("share", [0.5 / 0.8, 0.5 / 0.95])
def test_regression_scores_may_be_shared_by_either_side_of_a_tie(faults, share):
    """With top_p 0.8, which the first two just reach, rounding decides whether the third shares the probability."""
    parameters = {"temperature": 1.0, "top_p": 0.8, "logprobs": 0}
    assert faults(parameters, scores_of="processed", logprobs=(float(np.log(share)),)) == []
    assert faults(parameters, scores_of="processed", logprobs=(float(ROW[0]),)) == [("logprobs", 0)]


def test_rounding_of_scores_grows_with_penalties_and_with_low_temperature(faults):
    row = np.array([0.0, 0.0])
    parameters = {"temperature": 0.5, "repetition_penalty": 2.0, "logprobs": 0}
    for error, is_right in ((0.079, True), (0.081, False)):
        found = faults(parameters, row=row, scores_of="processed", logprobs=(float(np.log(0.5)) - error,))
        assert (found == []) is is_right


def test_masked_tokens_may_be_listed_with_a_number_that_stands_for_never(faults):
    parameters = {"allowed_token_ids": [0, 1], "logprobs": 3}
    for never in (-np.inf, -1e9):
        entry = ({0: float(np.log(0.625)), 1: float(np.log(0.375)), 2: never},)
        assert faults(parameters, scores_of="processed", top_logprobs=entry) == []
    entry = ({0: float(np.log(0.625)), 1: float(np.log(0.375)), 2: -2.0},)
    assert faults(parameters, scores_of="processed", top_logprobs=entry) == [("top_logprobs", 0)]


@pytest.mark.parametrize("scores_of", ["penalised", "processed"])
def test_parameters_that_leave_no_token_demand_no_scores(faults, scores_of):
    parameters = {"allowed_token_ids": [1], "bad_token_sequences": [[1]], "logprobs": 0}
    assert faults(parameters, scores_of=scores_of, logprobs=(-3.0,), seen=0) == []


def test_expected_scores_have_the_bound_of_the_judgement(trial_of, output):
    trial = trial_of([EngineRequest("a", (1,), 4)], [output("a", 0)], lambda _: list(ROW))
    expected = expected_logprobs(answers(trial, set())[0], 0)
    assert expected is not None
    assert expected.bound == pytest.approx(2 * BOUND)
    assert expected.lowest == pytest.approx(ROW)


@pytest.fixture
def prompt_faults(trial_of):
    """Gives the places of wrong prompt scores."""

    def find(entries, wanted=1, prompt=(1, 2, 0), row_of=lambda _: list(ROW), broken=frozenset()):
        request = EngineRequest("a", prompt, 4, {"prompt_logprobs": wanted})
        given = EngineOutput("a", (EngineSample((0,)),), entries)
        findings = Findings()
        check_prompt_scores(trial_of([request], [given], row_of), set(broken), findings)
        assert all(each.check == "prompt_scores" and each.blame == ("prompt_logprobs",) for each in findings.found)
        return [each.place for each in findings.found], findings.num_seen["prompt_scores"]

    return find


def entry_of(*token_ids):
    return {token_id: float(ROW[token_id]) for token_id in token_ids}


def test_right_scores_of_the_prompt_pass(prompt_faults):
    assert prompt_faults((None, entry_of(0, 2), entry_of(0))) == ([], 4)


@pytest.mark.parametrize(
    ("entries", "place"),
    [
        ((None, entry_of(0), entry_of(0)), 1),
        ((None, entry_of(2), entry_of(0)), 1),
        ((None, entry_of(0, 2), {0: -1.0}), 2),
        ((None, entry_of(0, 2), {0: float(ROW[0]), 7: -1.0}), 2),
    ],
    ids=["the prompt's own lacks", "the likeliest lacks", "another value", "no such token"],
)
def test_wrong_scores_of_the_prompt_are_found(prompt_faults, entries, place):
    assert prompt_faults(entries)[0] == [place] * 2


def test_scores_of_the_prompt_are_judged_by_the_tokens_before(prompt_faults):
    def row_of(token_ids):
        return list(ROW if len(token_ids) == 1 else ROW[::-1])

    last = {3: float(ROW[0]), 0: float(ROW[3])}
    assert prompt_faults((None, entry_of(0, 2), last), row_of=row_of)[0] == []
    assert prompt_faults((None, last, last), row_of=row_of)[0] == [1] * 2


def test_scores_of_the_prompt_need_a_referee_and_a_form(prompt_faults):
    wrong = (None, entry_of(3), entry_of(3))
    assert prompt_faults(wrong, broken={("together", "a"), ("again", "a")}) == ([], 0)
    assert prompt_faults(wrong, row_of=None) == ([], 0)

"""Right tokens pass, wrong ones are found, and what is to blame is named; ties of the referee are told apart."""

from dataclasses import replace

import numpy as np
import pytest

from oracle.contract.findings import Findings, Kind
from oracle.contract.referee import Judgement
from oracle.contract.token_checks import ANOTHER, answers, check_tokens, place_of, see_effects
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

BOUND = 0.01
ROW = [0.0, 1.0, 3.0, 2.0, -1.0, 0.5, -3.0, -4.0]
"""2 is the best token, 3 the next; 6 and 7 end a request."""


def after_last(token_ids):
    """The token after the last one is due."""
    return [4.0 if each == (token_ids[-1] + 1) % 6 else 0.5 * (each % 3) for each in range(8)]


@pytest.fixture
def judge(trial_of, output):
    """Judges the tokens that one request is said to have given in each run."""

    def find(parameters, token_ids, row_of=lambda _: ROW, *, prompt=(1,), others=(), max_tokens=8, **fields):
        requests = [EngineRequest("a", prompt, max_tokens, parameters), *others]
        outputs = [output("a", *token_ids), *(output(each.request_id, 2) for each in others)]
        findings = Findings()
        trial = trial_of(requests, outputs, row_of, **fields)
        check_tokens(trial, answers(trial, set()), findings)
        return findings

    return find


def kinds(findings):
    return {each.kind for each in findings.found if each.request_id == "a"}


@pytest.mark.parametrize(
    ("parameters", "token_ids"),
    [
        ({}, (2, 2)),
        ({"logit_bias": [[4, 9.0]]}, (4, 4)),
        ({"allowed_token_ids": [0, 5]}, (5,)),
        ({"bad_token_sequences": [[2]]}, (3,)),
        ({"no_repeat_ngram_size": 1}, (2, 3, 5, 0)),
        ({"repetition_penalty": 2.0}, (2, 3, 2)),
        ({"presence_penalty": 2.5}, (2, 3, 1, 2)),
        ({"frequency_penalty": 0.9}, (2, 2, 3, 2)),
        ({"choices": [[4, 0]]}, (4, 0, 6)),
        ({"temperature": 1.0}, (7, 4)),
        ({"temperature": 1.0, "top_k": 2}, (3, 2)),
        ({"temperature": 1.0, "top_p": 0.7}, (3, 2)),
        ({"temperature": 1.0, "min_p": 0.3}, (3, 2)),
    ],
    ids=str,
)
def test_tokens_that_the_parameters_demand_pass(judge, parameters, token_ids):
    findings = judge(parameters, token_ids)
    assert findings.found == []
    assert findings.num_seen["tokens"] == 2 * len(token_ids)


@pytest.mark.parametrize(
    ("parameters", "token_ids", "place", "blame"),
    [
        ({}, (2, 3), 1, ()),
        ({"logit_bias": [[4, 9.0]]}, (2,), 0, ("logit_bias",)),
        ({"allowed_token_ids": [0, 5]}, (2,), 0, ("allowed_token_ids",)),
        ({"bad_token_sequences": [[2, 2]]}, (2, 2), 1, ("bad_token_sequences",)),
        ({"no_repeat_ngram_size": 2}, (2, 2, 2), 2, ("no_repeat_ngram_size",)),
        ({"repetition_penalty": 2.0}, (2, 2), 1, ("repetition_penalty",)),
        ({"presence_penalty": 2.5, "logprobs": 1}, (2, 2), 1, ("presence_penalty",)),
        ({"frequency_penalty": 0.9}, (2, 2, 2), 2, ("frequency_penalty",)),
        ({"choices": [[4, 0]]}, (4, 2), 1, ("choices",)),
        ({"temperature": 1.0, "top_k": 2}, (3, 1), 1, ("top_k",)),
        ({"temperature": 1.0, "top_p": 0.7}, (1,), 0, ("top_p",)),
        ({"temperature": 1.0, "min_p": 0.3}, (1,), 0, ("min_p",)),
        ({"temperature": 1.0, "top_k": 1, "top_p": 0.3}, (4,), 0, ()),
    ],
    ids=str,
)
def test_wrong_token_is_found_with_what_is_to_blame(judge, parameters, token_ids, place, blame):
    findings = judge(parameters, token_ids)
    assert [(each.check, each.kind, each.place, each.blame) for each in findings.found] == [
        ("tokens", Kind.WRONG, place, blame)
    ] * 2
    first = findings.found[0]
    assert first.gap > first.bound == pytest.approx(2 * BOUND, rel=1.0)
    assert f"token {token_ids[place]} at {place}" in first.message
    assert ("it would be right but for" in first.message) == bool(blame)


def test_token_that_is_right_for_a_neighbour_is_blamed_on_its_parameters(judge):
    neighbour = EngineRequest("b", (1,), 1, {"logit_bias": [[4, 9.0]]})
    findings = judge({}, (4,), others=[neighbour])
    assert {each.blame for each in findings.found if each.request_id == "a"} == {(ANOTHER,)}


def test_neighbour_that_may_draw_anything_is_blamed_for_nothing(judge):
    neighbour = EngineRequest("b", (1,), 1, {"temperature": 1.5})
    findings = judge({}, (4,), others=[neighbour])
    assert {each.blame for each in findings.found if each.request_id == "a"} == {()}


def test_only_the_first_wrong_token_of_an_answer_is_told(judge):
    findings = judge({}, (3, 3, 3))
    assert [each.place for each in findings.found] == [0, 0]
    assert findings.num_seen["tokens"] == 2


@pytest.mark.parametrize(
    ("gap", "kind"),
    [(0.0, Kind.TIED), (0.019, Kind.ROUNDED), (0.021, Kind.WRONG)],
)
def test_gap_decides_what_a_greedy_token_is(judge, gap, kind):
    findings = judge({}, (3,), lambda _: [0.0, 1.0, -1.0, 1.0 - gap])
    assert kinds(findings) == {kind}
    assert all(each.gap == pytest.approx(gap) for each in findings.found)


def test_lowest_of_tied_tokens_is_no_finding(judge):
    assert judge({}, (1,), lambda _: [0.0, 1.0, -1.0, 1.0]).found == []


def test_tokens_that_the_reference_itself_takes_another_for_are_counted(trial_of, output):
    """With the request's parameters, and only where tokens are not drawn."""

    class Rounding:
        name = "rounding"

        def judge(self, token_ids):
            rows = np.tile(np.array(ROW), (len(token_ids), 1))
            narrow = rows.copy()
            narrow[1, 3] = 9.0
            return Judgement(rows, 5.0, narrow)

    for parameters, number in (({}, 2), ({"bad_token_sequences": [[3]]}, 0), ({"temperature": 1.0}, 0)):
        trial = trial_of([EngineRequest("a", (1,), 4, parameters)], [output("a", 2, 2)], lambda _: ROW)
        findings = Findings()
        check_tokens(trial, answers(replace(trial, referee=Rounding()), set()), findings)
        assert findings.num_reference_ties == number


def test_near_ties_do_not_end_the_judgement(judge):
    findings = judge({}, (3, 0), lambda _: [0.0, 1.0, -1.0, 1.0])
    assert [each.kind for each in findings.found] == [Kind.TIED, Kind.WRONG] * 2


def test_penalty_makes_the_bound_grow(judge):
    """Logits that are multiplied by a factor are further off by that factor."""

    def row_of(_):
        return [-1.0, -1.03, -9.0, -9.0]

    assert kinds(judge({}, (1,), row_of, prompt=(0,))) == {Kind.WRONG}
    penalised = {"repetition_penalty": 3.0}
    assert kinds(judge(penalised, (1,), lambda _: [-1.0, -1.0 - 0.015, -9.0, -9.0], prompt=(0, 1))) == {Kind.ROUNDED}
    assert kinds(judge(penalised, (1,), lambda _: [-1.0, -1.0 - 0.025, -9.0, -9.0], prompt=(0, 1))) == {Kind.WRONG}


def test_each_token_is_judged_by_the_tokens_before_it(judge):
    assert judge({}, (2, 3, 4), after_last).found == []
    assert [each.place for each in judge({}, (2, 3, 3), after_last).found] == [2, 2]
    # After a wrong token, the next is judged by what came, and not by what was due.
    assert [each.place for each in judge({}, (3, 4, 5), after_last).found] == [0, 0]


def test_drawn_token_that_may_come_by_rounding_passes(judge):
    near = [1.0, 1.0 - 0.015, -3.0, -3.0]
    far = [1.0, 1.0 - 0.025, -3.0, -3.0]
    parameters = {"temperature": 1.0, "top_k": 1}
    assert judge(parameters, (1,), lambda _: near).found == []
    assert kinds(judge(parameters, (1,), lambda _: far)) == {Kind.WRONG}


def test_order_that_the_engine_declares_is_the_one_that_counts(judge):
    """The bias lifts 4 above 2 only where the factor does not come after it."""
    parameters = {"logit_bias": [[4, 3.0]], "repetition_penalty": 2.0}

    def row_of(_):
        return [0.0, 0.0, 2.0, 0.0, 0.5]

    fields = {"prompt": (4,), "row_of": row_of}
    assert judge(parameters, (2,), parameter_order=("logit_bias", "repetition_penalty"), **fields).found == []
    assert judge(parameters, (4,), parameter_order=("repetition_penalty", "logit_bias"), **fields).found == []
    wrong = judge(parameters, (4,), parameter_order=("logit_bias", "repetition_penalty"), **fields)
    assert kinds(wrong) == {Kind.WRONG}


def test_eos_that_is_ignored_is_emitted_or_barred_as_the_engine_declares(judge):
    def row_of(_):
        return [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0]

    parameters = {"ignore_eos": True}
    assert judge(parameters, (6, 6), row_of).found == []
    assert judge(parameters, (1, 1), row_of, ignore_eos="bans").found == []
    assert {each.blame for each in judge(parameters, (6,), row_of, ignore_eos="bans").found} == {("ignore_eos",)}


def test_penalties_count_the_prompt_where_the_engine_declares_so(judge):
    parameters = {"presence_penalty": 2.5}
    assert judge(parameters, (3,), prompt=(2,), penalties_count_prompt=True).found == []
    assert judge(parameters, (2,), prompt=(2,)).found == []
    assert kinds(judge(parameters, (2,), prompt=(2,), penalties_count_prompt=True)) == {Kind.WRONG}


def test_parameters_that_leave_no_token_demand_none(judge):
    assert judge({"allowed_token_ids": [1], "bad_token_sequences": [[1]]}, (5, 0)).found == []


def test_tokens_beyond_max_tokens_are_not_judged(judge):
    """An engine that never ends would take the referee beyond the positions that a model knows."""

    def row_of(token_ids):
        assert len(token_ids) <= 3
        return ROW

    assert judge({}, (2, 2, 3, 3, 3), row_of, max_tokens=2).found == []


def test_nothing_is_judged_without_a_referee_or_a_form(trial_of, output):
    request = EngineRequest("a", (1,), 2)
    assert answers(trial_of([request], [output("a", 5)], None), set()) == []
    trial = trial_of([request], [output("a", 5)])
    assert [each.run for each in answers(trial, {("together", "a")})] == ["again"]
    assert answers(trial_of([request], []), set()) == []


def test_every_sample_is_judged(trial_of):
    request = EngineRequest("a", (1,), 2, {"n": 2})
    given = EngineOutput("a", (EngineSample((2,)), EngineSample((3,))))
    trial = trial_of([request], [given], lambda _: ROW)
    findings = Findings()
    check_tokens(trial, answers(trial, set()), findings)
    assert len(findings.found) == 2
    assert findings.num_seen["tokens"] == 4


@pytest.mark.parametrize(
    ("parameters", "token_ids", "shown"),
    [
        ({"logit_bias": [[4, 9.0]]}, (4,), True),
        ({"logit_bias": [[4, 1.0]]}, (2,), False),
        ({"repetition_penalty": 2.0}, (2, 3), True),
        ({"repetition_penalty": 1.1}, (2, 2), False),
        ({"temperature": 1.0}, (2, 2), False),
        ({"temperature": 1.0}, (2, 3), True),
        ({"temperature": 1.0, "top_k": 2}, (2,), True),
        ({"temperature": 1.0, "top_k": 8}, (2,), False),
        ({"temperature": 1.0, "top_p": 0.5}, (2,), True),
        ({"temperature": 1.0, "min_p": 1e-9}, (2,), False),
        ({"min_tokens": 2}, (2, 2), False),
        ({"stop_token_ids": [2]}, (2,), True),
        ({"stop_token_ids": [3]}, (2,), False),
        ({"ignore_eos": True}, (2, 6), True),
        ({"ignore_eos": True}, (2, 2), False),
        ({"logprobs": 1}, (2,), True),
    ],
    ids=str,
)
def test_parameter_showed_only_where_it_made_a_difference(trial_of, output, parameters, token_ids, shown):
    findings = Findings()
    trial = trial_of([EngineRequest("a", (1,), 4, parameters)], [output("a", *token_ids)], lambda _: ROW)
    see_effects(answers(trial, set()), findings)
    name = list(parameters)[-1]
    assert findings.asked[name] == 1
    assert findings.effects[name] == shown


def test_stop_token_that_is_left_out_of_the_output_shows_as_well(trial_of, output):
    findings = Findings()
    request = EngineRequest("a", (1,), 4, {"stop_token_ids": [2]})
    trial = trial_of([request], [output("a", stop_token_id=2)], lambda _: ROW, shows_stop_token=False)
    see_effects(answers(trial, set()), findings)
    assert findings.effects["stop_token_ids"] == 1


def test_barred_eos_shows_where_it_would_have_come(trial_of, output):
    findings = Findings()
    request = EngineRequest("a", (1,), 4, {"ignore_eos": True})
    row = np.where(np.arange(8) == 6, 9.0, ROW).tolist()
    trial = trial_of([request], [output("a", 2)], lambda _: row, ignore_eos="bans")
    see_effects(answers(trial, set()), findings)
    assert findings.effects["ignore_eos"] == 1


def test_place_of_a_request_has_what_the_engine_declares(trial_of):
    trial = trial_of(
        [], [], parameter_order=("logit_bias",), penalties_count_prompt=True, ignore_eos="bans", eos_token_ids=(3,)
    )
    place = place_of(trial, EngineRequest("a", (1, 2), 3, {"top_k": 1}))
    assert (place.prompt, place.output, place.eos_token_ids) == ((1, 2), (), (3,))
    assert (place.order, place.counts_prompt, place.bans_eos) == (("logit_bias",), True, True)

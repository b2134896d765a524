"""Company that changes nothing passes, company that changes something is found, and rounding is told apart."""

import numpy as np
import pytest

from oracle.contract.company_checks import check_agreement, check_company, check_samples_differ, is_determined
from oracle.contract.findings import Findings, Kind
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

NEAR = [0.0, 1.0, 0.985, -1.0, -2.0, -2.0, -9.0, -9.0]
"""1 is the best token, and 2 is within rounding of it; 6 and 7 end a request."""


@pytest.fixture
def found(trial_of, output):
    """Compares what one request gave together with what it gave in one other run."""

    def find(token_ids, others, *, run="again", parameters=None, abort_after=None, row_of=lambda _: NEAR, **fields):
        request = EngineRequest("a", (1,), 4, parameters or {}, abort_after=abort_after)
        neighbour = EngineRequest("b", (2,), 1)
        scores = fields.pop("scores", ({}, {}))
        one, other = (output("a", *each, **its) for each, its in zip((token_ids, others), scores, strict=True))
        beside = output("b", 1)
        value = {"a": other} if run == "alone" else [other, beside]
        trial = trial_of([request, neighbour], [one, beside], row_of, **{"again": [one, beside], **fields, run: value})
        findings = Findings()
        check_company(trial, set(), findings)
        return findings

    return find


def told(findings):
    return [(each.check, each.kind, each.place, each.blame) for each in findings.found]


RUNS = [("again", "repeat"), ("backwards", "order"), ("alone", "alone")]


@pytest.mark.parametrize(("run", "check"), RUNS)
def test_request_that_gives_the_same_passes(found, run, check):
    findings = found((1, 4), (1, 4), run=run)
    assert findings.found == []
    assert findings.num_seen[check] >= 1


@pytest.mark.parametrize(("run", "check"), RUNS)
def test_other_token_is_found_by_the_check_of_its_run(found, run, check):
    assert told(found((1, 4), (1, 3), run=run)) == [(check, Kind.WRONG, 1, ())]


def test_neighbours_that_are_aborted_make_it_a_matter_of_aborts(trial_of, output):
    requests = [EngineRequest("a", (1,), 4), EngineRequest("b", (2,), 4, abort_after=1)]
    outputs = [output("a", 1, 1), output("b", 1)]
    findings = Findings()
    check_company(trial_of(requests, outputs, lambda _: NEAR, alone={"a": output("a", 1, 4)}), set(), findings)
    assert told(findings) == [("aborts", Kind.WRONG, 1, ())]
    assert findings.num_seen == {"repeat": 2, "aborts": 1}


@pytest.mark.parametrize(
    ("second", "kind"),
    [(1.0, Kind.TIED), (0.985, Kind.ROUNDED), (0.975, Kind.WRONG)],
)
def test_gap_of_the_referee_decides_what_a_difference_is(found, second, kind):
    findings = found((1,), (2,), row_of=lambda _: [0.0, 1.0, second, -1.0, -2.0, -2.0, -9.0, -9.0])
    assert [each.kind for each in findings.found] == [kind]
    assert findings.found[0].gap == pytest.approx(1.0 - second)


def test_gap_is_that_of_scores_with_the_requests_parameters(found):
    apart = {"logit_bias": [[2, -5.0]]}
    assert told(found((1,), (2,), parameters=apart)) == [("repeat", Kind.WRONG, 0, ())]
    barred = {"bad_token_sequences": [[2]]}
    assert told(found((1,), (2,), parameters=barred)) == [("repeat", Kind.WRONG, 0, ())]


def test_bits_that_are_promised_leave_no_room_for_rounding(found):
    assert told(found((1,), (2,), contract="bitwise")) == [("repeat", Kind.WRONG, 0, ())]


def test_difference_without_a_referee_is_wrong(found):
    assert told(found((1,), (2,), row_of=None)) == [("repeat", Kind.WRONG, 0, ())]


def test_other_length_is_found_unless_somebody_aborted_it(found):
    assert told(found((1, 4), (1,))) == [("repeat", Kind.WRONG, 1, ("length",))]
    assert told(found((1,), (1, 4))) == [("repeat", Kind.WRONG, 1, ("length",))]
    assert told(found((1, 4), (1,), abort_after=2)) == []


def test_end_that_is_nearly_tied_may_come_or_not_where_it_is_left_out(found):
    """A stop token that is shown would stand in the output, as another token."""

    def row_of(_):
        return [0.0, 1.0, 0.0, -1.0, -2.0, -2.0, 0.985, -9.0]

    hidden = found((1, 1), (1,), row_of=row_of, shows_stop_token=False)
    assert told(hidden) == [("repeat", Kind.ROUNDED, 1, ())]
    assert told(found((1, 1), (1,), row_of=row_of)) == [("repeat", Kind.WRONG, 1, ("length",))]
    far = found((1, 0), (1,), row_of=row_of, shows_stop_token=False)
    assert told(far) == [("repeat", Kind.WRONG, 1, ("length",))]


def test_tokens_beyond_max_tokens_are_not_compared(found):
    assert told(found((1, 1, 1, 1, 3), (1, 1, 1, 1, 4, 4))) == []


def test_what_has_no_form_is_not_compared(trial_of, output):
    trial = trial_of([EngineRequest("a", (1,), 4)], [output("a", 1)], lambda _: NEAR, again=[output("a", 3)])
    for broken in ({("together", "a")}, {("again", "a")}):
        findings = Findings()
        check_company(trial, broken, findings)
        assert (findings.found, findings.num_seen) == ([], {})


@pytest.mark.parametrize(
    ("parameters", "capabilities", "answer"),
    [
        ({}, (), True),
        ({"temperature": 0.0}, (), True),
        ({"temperature": 1.0}, ("seeded_sampling",), False),
        ({"temperature": 1.0, "seed": 0}, ("seeded_sampling",), True),
        ({"temperature": 1.0, "seed": 0}, (), False),
        ({"temperature": 1.0, "seed": None}, ("seeded_sampling",), False),
    ],
)
def test_request_is_determined_if_greedy_or_seeded(trial_of, parameters, capabilities, answer):
    trial = trial_of([], [], capabilities=capabilities)
    assert is_determined(trial, EngineRequest("a", (1,), 4, parameters)) is answer


SEEDED = {"temperature": 1.0, "seed": 5}


def test_seeded_request_has_to_draw_the_same(found):
    assert told(found((1, 0), (1, 0), parameters=SEEDED)) == []
    assert told(found((1, 0), (1, 2), parameters=SEEDED)) == [("samples", Kind.WRONG, 1, ())]
    assert told(found((1, 0), (1, 2), parameters={"temperature": 1.0})) == []


def test_rounding_of_half_precision_may_draw_another_token(found):
    """It moves probabilities by percents, and no gap of scores tells whether it did."""
    assert told(found((1,), (0,), parameters=SEEDED, dtype="bfloat16")) == [("samples", Kind.ROUNDED, 0, ())]
    bitwise = found((1,), (0,), parameters=SEEDED, dtype="bfloat16", contract="bitwise")
    assert told(bitwise) == [("samples", Kind.WRONG, 0, ())]


def scores_of(*values, kind="logprobs"):
    return {kind: values}


@pytest.mark.parametrize(
    ("error", "contract", "is_right"),
    [
        (0.0, "bitwise", True),
        (1e-7, "bitwise", False),
        (0.035, "error-bounded", True),
        (0.045, "error-bounded", False),
        (0.035, "greedy-up-to-ties", True),
    ],
)
@pytest.mark.parametrize("run", ["again", "backwards", "alone"])
def test_scores_of_the_same_tokens_may_differ_by_what_the_contract_lets_them(found, error, contract, is_right, run):
    scores = (scores_of(-0.5, -0.5), scores_of(-0.5, -0.5 + error))
    findings = found((1, 1), (1, 1), scores=scores, contract=contract, run=run)
    check = dict(RUNS)[run]
    assert told(findings) == ([] if is_right else [(check, Kind.WRONG, 1, ("logprobs",))])


def test_rows_of_logits_are_compared_element_by_element(found):
    row, other = (0.0, 1.0, -np.inf), (0.0, 1.0 + 1e-9, -np.inf)
    same = (scores_of(row, kind="logits"), scores_of(row, kind="logits"))
    assert told(found((1,), (1,), scores=same, contract="bitwise")) == []
    differing = (scores_of(row, kind="logits"), scores_of(other, kind="logits"))
    assert told(found((1,), (1,), scores=differing, contract="bitwise")) == [("repeat", Kind.WRONG, 0, ("logits",))]
    assert told(found((1,), (1,), scores=differing)) == []
    barred = (scores_of(row, kind="logits"), scores_of((0.0, 1.0, 0.5), kind="logits"))
    assert told(found((1,), (1,), scores=barred)) == [("repeat", Kind.WRONG, 0, ("logits",))]


def test_scores_may_differ_further_where_parameters_make_rounding_grow(found):
    scores = (scores_of(-0.5), scores_of(-0.5 + 0.15))
    parameters = {"temperature": 0.5, "seed": 1, "repetition_penalty": 2.0}
    fields = {"scores": scores, "scores_of": "processed"}
    assert told(found((1,), (1,), parameters=parameters, **fields)) == []
    assert told(found((1,), (1,), parameters={"temperature": 0.5, "seed": 1}, **fields)) != []
    no_token_left = {"allowed_token_ids": [1], "bad_token_sequences": [[1]]}
    assert told(found((1,), (1,), parameters=no_token_left, **fields)) == []


def test_scores_need_a_referee_unless_bits_are_promised(found):
    scores = (scores_of(-0.5), scores_of(-0.6))
    assert told(found((1,), (1,), scores=scores, row_of=None)) == []
    assert told(found((1,), (1,), scores=scores, row_of=None, contract="bitwise")) != []


@pytest.fixture
def agree(trial_of, output):
    """Compares what one request gave with what another engine is said to have given."""

    def find(token_ids, others, *, parameters=None, scores=({}, {}), broken=frozenset(), **fields):
        request = EngineRequest("a", (1,), 4, parameters or {})
        trial = trial_of([request], [output("a", *token_ids, **scores[0])], lambda _: NEAR, **fields)
        other = None if others is None else EngineRun((output("a", *others, **scores[1]),))
        findings = Findings()
        check_agreement(trial, other, set(broken), findings)
        return findings

    return find


def test_engines_that_give_the_same_agree(agree):
    findings = agree((1, 1), (1, 1))
    assert (findings.found, findings.num_seen) == ([], {"agreement": 1})


def test_engines_that_differ_are_told_wrong_from_rounded(agree):
    assert told(agree((1, 1), (1, 3))) == [("agreement", Kind.WRONG, 1, ())]
    assert told(agree((1, 1), (1, 2))) == [("agreement", Kind.ROUNDED, 1, ())]
    assert told(agree((1, 1), (1,))) == [("agreement", Kind.WRONG, 1, ("length",))]


def test_promise_of_bits_says_nothing_of_another_engine(agree):
    assert told(agree((1,), (2,), contract="bitwise")) == [("agreement", Kind.ROUNDED, 0, ())]
    scores = (scores_of(-0.5), scores_of(-3.0))
    assert told(agree((1,), (1,), scores=scores, contract="bitwise")) == []


def test_another_engine_may_draw_something_else_with_the_same_seed(agree):
    findings = agree((1, 1), (3, 3), parameters=SEEDED)
    assert (findings.found, findings.num_seen) == ([], {})


def test_nothing_is_compared_where_one_side_gave_nothing(agree, trial_of):
    assert agree((1,), None).num_seen == {}
    assert agree((1,), (3,), broken={("together", "a")}).num_seen == {}
    trial = trial_of([EngineRequest("a", (1,), 4)], [EngineOutput("a", (EngineSample((1,)),))], lambda _: NEAR)
    findings = Findings()
    for outputs in ((), (EngineOutput("a", refused="too long"),)):
        check_agreement(trial, EngineRun(outputs), set(), findings)
    assert (findings.found, findings.num_seen) == ([], {})


@pytest.fixture
def alike(trial_of):
    """Tells whether samples of one request are too much alike."""

    def find(parameters, *samples, row_of=lambda _: NEAR, broken=frozenset()):
        request = EngineRequest("a", (1,), 40, {"n": len(samples), **parameters})
        given = EngineOutput("a", tuple(map(EngineSample, samples)))
        findings = Findings()
        check_samples_differ(trial_of([request], [given], row_of, eos_token_ids=()), set(broken), findings)
        assert all(each.check == "samples" and each.blame == ("n",) for each in findings.found)
        return bool(findings.found), findings.num_seen["samples"]

    return find


LONG = (0,) * 20
"""By chance once in 1e15 or more, at temperature 1."""


def test_samples_that_are_drawn_apart_pass(alike):
    assert alike({"temperature": 1.0}, LONG, (1, *LONG[1:])) == (False, 1)
    assert alike({"temperature": 1.0}, (0, 1), (0, 1)) == (False, 1)


def test_samples_that_are_the_same_against_all_odds_are_found(alike):
    assert alike({"temperature": 1.0}, LONG, LONG) == (True, 1)
    assert alike({"temperature": 1.0}, LONG, (1, *LONG[1:]), LONG) == (True, 1)


@pytest.mark.parametrize(
    "parameters",
    [
        {"top_k": 1},
        {"top_p": 0.01},
        {"min_p": 1.0},
        {"allowed_token_ids": [0]},
        {"choices": [list(LONG)]},
        {"logit_bias": [[0, 100.0]]},
        {"temperature": 1e-3},
    ],
    ids=str,
)
def test_regression_samples_may_be_the_same_where_parameters_leave_little_choice(alike, parameters):
    """Chances had been counted as if nothing but temperature had been asked for."""
    best = [9.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    row_of = (lambda _: NEAR) if "allowed_token_ids" in parameters or "choices" in parameters else (lambda _: best)
    assert alike({"temperature": 1.0, **parameters}, LONG, LONG, row_of=row_of) == (False, 1)


def test_samples_are_compared_only_where_they_are_drawn_and_can_be_judged(alike):
    assert alike({}, LONG, LONG) == (False, 0)
    assert alike({"temperature": 1.0}, LONG) == (False, 0)
    assert alike({"temperature": 1.0}, LONG, LONG, row_of=None) == (False, 0)
    assert alike({"temperature": 1.0}, LONG, LONG, broken={("together", "a")}) == (False, 0)

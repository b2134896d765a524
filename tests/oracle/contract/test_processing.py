"""Each parameter's effect on a row of logits, against numbers worked out by hand."""

import numpy as np
import pytest

from oracle.contract.filters import _FILTERS
from oracle.contract.processing import _STEPS, USUAL_FILTERS, USUAL_ORDER, Place, growth, processed
from oracle.engines.parameters import DEFAULT_BY_PARAMETER, PARAMETERS

NEVER = -np.inf
ROW = [2.0, -1.0, 0.5, 4.0, -2.0]


def after(parameters, *, prompt=(0,), output=(), row=ROW, **fields):
    return processed(np.array(row), Place(parameters, prompt, output, **fields)).tolist()


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ROW),
        ({"allowed_token_ids": [1, 4]}, [NEVER, -1.0, NEVER, NEVER, -2.0]),
        ({"allowed_token_ids": [1, 99]}, [NEVER, -1.0, NEVER, NEVER, NEVER]),
        ({"logit_bias": [[3, -5.0], [1, 2.5]]}, [2.0, 1.5, 0.5, -1.0, -2.0]),
        ({"logit_bias": [[3, -5.0], [3, 1.0]]}, [2.0, -1.0, 0.5, 0.0, -2.0]),
        ({"bad_token_sequences": [[2], [3]]}, [2.0, -1.0, NEVER, NEVER, -2.0]),
        ({"min_tokens": 1}, ROW),
        ({"top_k": 1, "temperature": 0.5, "seed": 3, "logprobs": 2}, ROW),
    ],
    ids=lambda value: " ".join(value) or "none" if isinstance(value, dict) else "",
)
def test_parameter_does_what_it_means(parameters, expected):
    assert after(parameters) == expected


WITHOUT_STEP = {"temperature", "seed", "n", "stop_token_ids", "logprobs", "prompt_logprobs", "logits"}
WITHOUT_EFFECT = {"priority", "cache_salt"}


def test_every_parameter_has_a_step_or_a_filter_or_a_reason_to_have_none():
    """One that had neither would be taken for one that changes no token."""
    assert set(_STEPS) == set(USUAL_ORDER)
    assert set(_FILTERS) == set(USUAL_FILTERS)
    assert {*USUAL_ORDER, *USUAL_FILTERS} == set(PARAMETERS) - WITHOUT_STEP - WITHOUT_EFFECT


@pytest.mark.parametrize("name", USUAL_ORDER)
def test_default_changes_nothing(name):
    fields = {"prompt": (0, 1, 0), "output": (3, 1), "eos_token_ids": (2,), "bans_eos": True}
    assert after({name: DEFAULT_BY_PARAMETER[name]}, **fields) == ROW


def test_repetition_penalty_divides_what_is_positive_and_multiplies_what_is_not():
    """Prompt and output count alike, and how often a token stands there does not matter."""
    assert after({"repetition_penalty": 2.0}, prompt=(3, 3, 1), output=(2,)) == [2.0, -2.0, 0.25, 2.0, -2.0]


@pytest.mark.parametrize(
    ("counts_prompt", "expected"),
    [(False, [2.0, -1.5, 0.5, 3.0, -2.0]), (True, [1.5, -1.5, 0.5, 3.0, -2.0])],
)
def test_frequency_penalty_is_taken_as_often_as_a_token_stands_there(counts_prompt, expected):
    found = after({"frequency_penalty": 0.5}, prompt=(0,), output=(3, 1, 3), counts_prompt=counts_prompt)
    assert found == expected


@pytest.mark.parametrize(
    ("counts_prompt", "expected"),
    [(False, [2.0, -1.5, 0.5, 3.5, -2.0]), (True, [1.5, -1.5, 0.5, 3.5, -2.0])],
)
def test_presence_penalty_is_taken_once(counts_prompt, expected):
    found = after({"presence_penalty": 0.5}, prompt=(0, 0), output=(3, 1, 3), counts_prompt=counts_prompt)
    assert found == expected


def test_barred_sequence_bars_its_end_only_after_its_start():
    parameters = {"bad_token_sequences": [[1, 3], [2, 1, 0]]}
    assert after(parameters, output=(2,)) == ROW
    assert after(parameters, output=(1,)) == [2.0, -1.0, 0.5, NEVER, -2.0]
    assert after(parameters, output=(2, 1)) == [NEVER, -1.0, 0.5, NEVER, -2.0]


def test_barred_sequence_does_not_begin_in_the_prompt():
    assert after({"bad_token_sequences": [[1, 3]]}, prompt=(1,)) == ROW


@pytest.mark.parametrize(
    ("size", "prompt", "output", "barred"),
    [
        (1, (0, 2), (4,), {0, 2, 4}),
        (2, (0, 1, 0), (), {1}),
        (2, (0, 1, 2, 0), (3, 0), {1, 3}),
        (2, (0,), (), set()),
        (3, (0, 1, 2, 0), (1,), {2}),
        (3, (0, 1), (), set()),
        (3, (0,), (), set()),
        (4, (1, 1, 1, 1), (), {1}),
    ],
)
def test_no_run_of_tokens_comes_twice(size, prompt, output, barred):
    found = after({"no_repeat_ngram_size": size}, prompt=prompt, output=output)
    assert {token_id for token_id, score in enumerate(found) if score == NEVER} == barred


@pytest.mark.parametrize(
    ("output", "allowed"),
    [
        ((), {1, 2}),
        ((1,), {2, 3}),
        ((1, 2), {4}),
        ((2,), {4}),
        ((1, 3), {0, 4}),
        ((3,), set()),
    ],
)
def test_choices_let_come_what_goes_on_or_ends(output, allowed):
    """4 ends requests; [1, 3] is complete and goes on with 0 in another choice."""
    parameters = {"choices": [[1, 2], [2], [1, 3], [1, 3, 0]]}
    found = after(parameters, output=output, eos_token_ids=(4,))
    assert {token_id for token_id, score in enumerate(found) if score > NEVER} == allowed


@pytest.mark.parametrize(("num_output_tokens", "barred"), [(0, {1, 3}), (1, {1, 3}), (2, set())])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_neither_eos_nor_stop_tokens_come_before_min_tokens(num_output_tokens, barred, ignore_eos):
    """Also where EOS would not end the request: that is what the parameter's meaning says."""
    parameters = {"min_tokens": 2, "stop_token_ids": [3], "ignore_eos": ignore_eos}
    found = after(parameters, output=(0,) * num_output_tokens, eos_token_ids=(1,))
    assert {token_id for token_id, score in enumerate(found) if score == NEVER} == barred


@pytest.mark.parametrize(
    ("bans_eos", "parameters", "barred"),
    [(True, {"ignore_eos": True}, {1}), (True, {}, set()), (False, {"ignore_eos": True}, set())],
)
def test_ignored_eos_is_barred_where_the_engine_declares_so(bans_eos, parameters, barred):
    found = after(parameters, eos_token_ids=(1,), bans_eos=bans_eos)
    assert {token_id for token_id, score in enumerate(found) if score == NEVER} == barred


@pytest.mark.parametrize(
    ("order", "score"),
    [((), 3.0), (("logit_bias", "repetition_penalty"), 3.0), (("repetition_penalty", "logit_bias"), 4.0)],
)
def test_steps_that_do_not_commute_come_in_the_order_of_the_engine(order, score):
    parameters = {"repetition_penalty": 2.0, "logit_bias": [[3, 2.0]]}
    assert after(parameters, prompt=(3,), order=order)[3] == score


def test_row_itself_stays_as_it_is():
    row = np.array(ROW)
    processed(row, Place({"logit_bias": [[0, 1.0]]}, (0,), ()))
    assert row.tolist() == ROW


@pytest.mark.parametrize(
    ("parameters", "stop_token_ids"),
    [
        ({}, {1}),
        ({"stop_token_ids": [2, 3]}, {1, 2, 3}),
        ({"ignore_eos": True}, set()),
        ({"ignore_eos": True, "stop_token_ids": [2]}, {2}),
        ({"stop_token_ids": None}, {1}),
    ],
)
def test_place_knows_what_ends_its_request(parameters, stop_token_ids):
    assert Place(parameters, (0,), (), (1,)).stop_token_ids == stop_token_ids


def test_order_of_filters_is_the_engines():
    parameters = {"top_k": 3, "top_p": 0.5, "min_p": 0.1, "temperature": 1.0}
    assert Place(parameters, (), ()).filters == ("top_k", "top_p", "min_p")
    assert Place(parameters, (), (), order=("min_p", "temperature", "top_p")).filters == ("min_p", "top_p", "top_k")


@pytest.mark.parametrize(("penalty", "factor"), [(1.0, 1.0), (2.0, 2.0), (0.5, 2.0)])
def test_rounding_grows_with_a_factor_on_logits(penalty, factor):
    assert growth(Place({"repetition_penalty": penalty}, (), ())) == factor
    assert growth(Place({}, (), ())) == 1.0

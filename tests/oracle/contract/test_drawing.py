"""Drawn runs are ones that the engine declares it takes, and everything that it declares comes up."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from oracle.choosers import RandomChooser, SimplestChooser
from oracle.contract.drawing import MAX_REQUESTS, Limits, choose_run, is_legal
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.parameters import PARAMETERS

pytestmark = pytest.mark.without_shape_checks  # thousands of small choices, each by a protocol

LIMITS = Limits(vocab_size=131, max_model_len=128, eos_token_ids=(7, 19))
ALL = EngineDeclaration("all", capabilities=("arrivals", "aborts", "batching"), parameters=PARAMETERS)


def runs(declaration, limits=LIMITS, number=100):
    return [choose_run(RandomChooser(seed), declaration, limits) for seed in range(number)]


def requests_of(declaration, limits=LIMITS, number=100):
    return [request for run in runs(declaration, limits, number) for request in run]


@pytest.fixture(scope="module")
def all_runs():
    return runs(ALL, number=250)


@pytest.fixture(scope="module")
def all_requests(all_runs):
    return [request for run in all_runs for request in run]


def test_every_request_can_be_run(all_runs):
    for run in all_runs:
        assert 1 <= len(run) <= MAX_REQUESTS
        assert len({request.request_id for request in run}) == len(run)
        for request in run:
            assert request.prompt_token_ids
            assert all(0 <= token_id < LIMITS.vocab_size for token_id in request.prompt_token_ids)
            assert request.max_tokens >= 1
            assert len(request.prompt_token_ids) + request.max_tokens <= LIMITS.max_model_len
            assert is_legal(ALL, request.parameters)
            assert request.parameters.get("min_tokens", 0) <= request.max_tokens


def test_token_ids_in_parameters_lie_in_the_vocabulary(all_requests):
    for request in all_requests:
        values = request.parameters
        named = [*values.get("allowed_token_ids", ()), *values.get("stop_token_ids", ())]
        named += [token_id for token_id, _ in values.get("logit_bias", ())]
        named += [
            token_id for name in ("bad_token_sequences", "choices") for own in values.get(name, ()) for token_id in own
        ]
        assert all(0 <= token_id < LIMITS.vocab_size for token_id in named)
        assert all(values.get("choices", [[1]]))
        assert not {7, 19} & {token_id for own in values.get("choices", ())[:-1] for token_id in own}


def test_every_parameter_and_feature_comes_up(all_runs, all_requests):
    seen = Counter(name for request in all_requests for name in request.parameters)
    assert set(seen) == set(PARAMETERS)
    assert min(seen.values()) >= 5
    assert {request.arrival for request in all_requests} >= {0, 1, 9}
    assert {request.abort_after for request in all_requests} == {None, 1, 2, 4}
    assert {len(run) for run in all_runs} == set(range(1, MAX_REQUESTS + 1))


def test_prompts_share_beginnings(all_runs):
    shared = [
        run
        for run in all_runs
        if any(one.prompt_token_ids[:4] == other.prompt_token_ids[:4] for one, other in pairwise(run))
    ]
    assert len(shared) > 30


def test_parameters_of_draws_come_only_with_draws(all_requests):
    for request in all_requests:
        if "temperature" not in request.parameters:
            assert not {"top_k", "top_p", "min_p", "seed"} & set(request.parameters)


def test_nothing_is_drawn_that_the_engine_does_not_declare():
    requests = requests_of(EngineDeclaration("bare", parameters=("logit_bias",)), number=50)
    assert {name for request in requests for name in request.parameters} == {"logit_bias"}
    assert {(request.arrival, request.abort_after) for request in requests} == {(0, None)}


def test_as_many_requests_come_as_the_engine_takes():
    assert {len(run) for run in runs(EngineDeclaration("one", max_num_requests=2), number=50)} == {1, 2}


def test_parameters_are_shared_where_the_engine_demands_it():
    declaration = EngineDeclaration("batch", parameters=PARAMETERS, shares_parameters=True)
    found = runs(declaration, number=50)
    for run in found:
        assert all((each.parameters, each.max_tokens) == (run[0].parameters, run[0].max_tokens) for each in run)
    assert any(run[0].parameters and len(run) > 1 for run in found)


def test_prompts_are_as_long_as_the_engine_needs():
    assert (
        min(len(each.prompt_token_ids) for each in requests_of(EngineDeclaration("x", min_prompt_tokens=5), number=40))
        == 5
    )


@pytest.mark.parametrize("max_model_len", [8, 24, 30])
@pytest.mark.parametrize("shares_parameters", [False, True])
def test_regression_short_models_get_short_requests(max_model_len, shares_parameters):
    """Prompts had no token, or fewer, where the longest output alone fills the model."""
    declaration = EngineDeclaration("short", parameters=PARAMETERS, shares_parameters=shares_parameters)
    for request in requests_of(declaration, Limits(131, max_model_len), 25):
        assert request.prompt_token_ids
        assert 1 <= request.max_tokens <= max_model_len - len(request.prompt_token_ids)
        assert request.parameters.get("min_tokens", 1) <= request.max_tokens


def test_only_values_are_tried_that_the_engine_names():
    values: dict[str, list[Any]] = {
        "temperature": [0.7],
        "seed": [3],
        "top_k": [5, 6],
        "stop_token_ids": [[2]],
        "min_tokens": [1],
    }
    declaration = EngineDeclaration("picky", parameters=PARAMETERS, parameter_values=values)
    requests = requests_of(declaration)
    for name, allowed in values.items():
        found = [request.parameters[name] for request in requests if name in request.parameters]
        assert found
        assert all(value in allowed for value in found), name
    assert all(is_legal(declaration, request.parameters) for request in requests)


def test_parameters_that_exclude_or_need_each_other_are_kept_to():
    declaration = EngineDeclaration(
        "strict",
        parameters=PARAMETERS,
        excluded_parameters=(("top_k", "temperature"), ("logit_bias", "min_tokens", "ignore_eos")),
        needed_parameters={"n": "seed", "seed": "temperature", "top_p": "n"},
    )
    requests = requests_of(declaration, number=150)
    assert all(is_legal(declaration, request.parameters) for request in requests)
    assert {"n", "seed", "top_p", "top_k", "min_tokens"} <= {name for each in requests for name in each.parameters}


@pytest.mark.parametrize(
    ("parameters", "answer"),
    [
        ({}, True),
        ({"top_k": 3, "temperature": 1.0}, True),
        ({"top_k": 4, "temperature": 1.0}, False),
        ({"top_k": 3}, False),
        ({"min_p": 0.1}, False),
        ({"temperature": 1.0, "top_p": 0.5, "top_k": 3}, False),
        ({"temperature": 1.0, "top_p": 0.5}, True),
    ],
)
def test_request_is_legal_if_the_declaration_takes_all_of_it(parameters, answer):
    declaration = EngineDeclaration(
        "strict",
        parameters=("temperature", "top_k", "top_p"),
        parameter_values={"top_k": [2, 3]},
        excluded_parameters=(("top_k", "top_p"), ()),
        needed_parameters={"top_k": "temperature"},
    )
    assert is_legal(declaration, parameters) is answer


def test_same_seed_draws_the_same_run():
    assert runs(ALL, number=5) == runs(ALL, number=5)
    assert len({str(run) for run in runs(ALL, number=5)}) == 5


def test_simplest_run_is_one_greedy_token():
    (request,) = choose_run(SimplestChooser(), ALL, LIMITS)
    assert (request.prompt_token_ids, request.max_tokens, request.parameters) == ((0,), 1, {})
    assert (request.arrival, request.abort_after) == (0, None)

"""A failing scenario becomes the smallest that still fails, and no attempt is one that could not be run."""

import time
from dataclasses import replace

import pytest

from oracle.contract.minimising import minimise
from oracle.contract.scenario import EngineScenario
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest
from oracle.families import FamilySpec

DECLARATION = EngineDeclaration(
    "scripted", families=("llama", "qwen2"), knobs={"block_size": [16, 4]}, min_prompt_tokens=2
)
REQUESTS = tuple(
    EngineRequest(
        f"r{number}",
        tuple(range(number, number + 9)),
        8,
        {"temperature": 1.0, "top_k": 3, "stop_token_ids": [1, 2, 3, 4], "min_tokens": 2},
        arrival=number,
        abort_after=3,
    )
    for number in range(4)
)
SCENARIO = EngineScenario(REQUESTS, {"block_size": 4}, FamilySpec("qwen2"), before=(REQUESTS, REQUESTS[:1]))


def smallest(fails, scenario=SCENARIO, declaration=DECLARATION):
    """What is left of a scenario that fails as a function says."""
    return minimise(scenario, fails, declaration, deadline=time.monotonic() + 60.0)


def test_everything_goes_that_does_not_matter():
    found = smallest(lambda scenario: any(5 in request.prompt_token_ids for request in scenario.requests))
    assert (found.before, found.knobs, found.family) == ((), {"block_size": 16}, FamilySpec("llama"))
    (request,) = found.requests
    assert sorted(request.prompt_token_ids) == [0, 5]
    assert (request.max_tokens, request.parameters, request.arrival, request.abort_after) == (1, {}, 0, None)


@pytest.mark.parametrize(
    ("fails", "kept"),
    [
        (lambda one: one.knobs["block_size"] == 4, {"knobs": {"block_size": 4}}),
        (lambda one: one.family.family == "qwen2", {"family": FamilySpec("qwen2")}),
        (lambda one: len(one.before) > 1, {"before": ((), ())}),
    ],
    ids=["a setting", "a family", "earlier runs"],
)
def test_what_matters_stays(fails, kept):
    found = smallest(fails)
    if "before" in kept:
        assert len(found.before) == 2
    else:
        assert {name: getattr(found, name) for name in kept} == kept


@pytest.mark.parametrize(
    ("fails", "kept"),
    [
        (lambda family: family == "qwen2:tied", "qwen2:tied"),
        (lambda family: family.startswith("qwen2"), "qwen2"),
        (lambda _: True, "llama"),
    ],
    ids=["the variant", "its family", "nothing"],
)
def test_variant_goes_where_its_family_is_enough(fails, kept):
    scenario = replace(SCENARIO, family=FamilySpec("qwen2:tied"))
    assert smallest(lambda one: fails(one.family.family), scenario).family == FamilySpec(kept)


def test_number_of_requests_goes_down_to_those_that_matter():
    found = smallest(lambda scenario: len(scenario.requests) >= 2)
    assert len(found.requests) == 2


def test_lists_get_shorter_but_never_empty():
    seen: list[list[int]] = []

    def fails(scenario):
        seen.extend(request.parameters.get("stop_token_ids", [0]) for request in scenario.requests)
        return any(3 in request.parameters.get("stop_token_ids", ()) for request in scenario.requests)

    found = smallest(fails)
    assert found.requests[0].parameters["stop_token_ids"] == [3]
    assert all(seen)


def test_no_attempt_is_one_that_could_not_be_run():
    attempts = []

    def fails(scenario):
        attempts.append(scenario)
        return scenario.requests[0].parameters.get("min_tokens") == 2

    smallest(fails)
    for scenario in attempts:
        assert scenario.requests
        for request in scenario.requests:
            assert len(request.prompt_token_ids) >= DECLARATION.min_prompt_tokens
            assert request.max_tokens >= request.parameters.get("min_tokens", 1)
            assert "temperature" in request.parameters or "top_k" not in request.parameters


STRICT = replace(
    DECLARATION,
    parameters=("temperature", "top_k", "stop_token_ids", "min_tokens", "n"),
    parameter_values={"stop_token_ids": [[1, 2, 3, 4]]},
    needed_parameters={"n": "temperature"},
    knobs={"block_size": [16, 4], "draft": [None, 2]},
    excluded_knobs=({"block_size": 16, "draft": 2}, {"draft": None, "family": "qwen2"}),
)


def test_regression_no_attempt_is_one_that_the_engine_declares_not_to_take():
    """Settings, values and parameters were made simple without regard to what excludes, allows or needs another."""
    attempts = []
    requests = tuple(replace(request, parameters={**request.parameters, "n": 2}) for request in REQUESTS)
    start = replace(SCENARIO, requests=requests, knobs={"block_size": 4, "draft": 2})

    def fails(scenario):
        attempts.append(scenario)
        return True

    found = smallest(fails, start, STRICT)
    assert (found.knobs, found.family) == ({"block_size": 16, "draft": None}, FamilySpec("llama"))
    assert found.requests[0].parameters == {}
    for scenario in attempts:
        assert scenario.knobs != {"block_size": 16, "draft": 2}
        assert scenario.knobs["draft"] == 2 or scenario.family != FamilySpec("qwen2")
        for request in scenario.requests:
            assert request.parameters.get("stop_token_ids", [1, 2, 3, 4]) == [1, 2, 3, 4]
            assert "temperature" in request.parameters or "n" not in request.parameters


def test_scenario_that_the_engine_does_not_take_becomes_small_all_the_same():
    odd = replace(SCENARIO, requests=(replace(REQUESTS[0], parameters={"unheard_of": 1}),))
    found = smallest(lambda scenario: "unheard_of" in scenario.requests[0].parameters, odd, STRICT)
    assert (found.requests[0].max_tokens, found.before) == (1, ())


def test_prompt_keeps_a_token_also_where_the_engine_takes_none():
    found = smallest(lambda _: True, declaration=replace(DECLARATION, min_prompt_tokens=0))
    assert len(found.requests[0].prompt_token_ids) == 1


def test_requests_that_share_parameters_go_on_sharing_them():
    declaration = replace(DECLARATION, shares_parameters=True)
    attempts = []

    def fails(scenario):
        attempts.append(scenario)
        return len(scenario.requests) > 1

    smallest(fails, declaration=declaration)
    assert all(len({repr((own.parameters, own.max_tokens)) for own in one.requests}) == 1 for one in attempts)


def test_search_ends_when_time_is_up():
    assert minimise(SCENARIO, lambda _: True, DECLARATION, deadline=time.monotonic() - 1.0) == SCENARIO

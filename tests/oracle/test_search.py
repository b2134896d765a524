"""The same seed draws the same cases, and a failing case is shrunk to the smallest within its time."""

import time

import pytest
from hypothesis import strategies as st

from oracle.errors import CheckFailed, ReferenceUnavailable
from oracle.scenario import RequestSpec, Scenario
from oracle.search import ShrinkSearch, draw_scenarios
from oracle.strategies import requests
from oracle.verdicts import Failure

pytestmark = pytest.mark.without_shape_checks

STRATEGY = st.lists(requests(vocab_size=50, max_prompt_tokens=8, max_tokens=2), min_size=1, max_size=5).map(
    lambda drawn: Scenario(requests=tuple(drawn), checkpoint=None)
)
SMALLEST = Scenario(requests=(RequestSpec((0,)),), checkpoint=None)
LONG = time.monotonic() + 1e6


def drawn(*, num_examples=30, seed=0):
    """All scenarios of one search."""
    scenarios: list[Scenario] = []
    draw_scenarios(STRATEGY, scenarios.append, num_examples=num_examples, seed=seed)
    return scenarios


def shrunk(check, *, deadline=LONG, num_examples=100):
    """The result of shrinking the first scenario that a check refuses."""
    first: list[tuple[Scenario, CheckFailed]] = []

    def look(scenario):
        if not first:
            try:
                check(scenario)
            except CheckFailed as error:
                first.append((scenario, error))

    draw_scenarios(STRATEGY, look, num_examples=num_examples, seed=0)
    scenario, error = first[0]
    search = ShrinkSearch(check, Failure(str(error), scenario), scenario, deadline=deadline)
    return scenario, search.run(STRATEGY, num_examples=num_examples, seed=0)


def num_tokens(scenario):
    """Prompt tokens of all requests."""
    return sum(len(request.prompt_token_ids) for request in scenario.requests)


def refuse_long(scenario):
    """A check that fails on three requests or more, one of them of four tokens or more."""
    if len(scenario.requests) >= 3 and any(len(request.prompt_token_ids) >= 4 for request in scenario.requests):
        message = f"{num_tokens(scenario)} tokens"
        raise CheckFailed(message)


def test_error_of_a_check_ends_the_drawing_as_it_is():
    """A check that counts what it has seen would pass when called once more, and be taken for a flaky one."""
    scenarios: list[Scenario] = []

    def remember(scenario):
        scenarios.append(scenario)
        if len(scenarios) == 3:
            message = "no model"
            raise ReferenceUnavailable(message)

    with pytest.raises(ReferenceUnavailable, match="no model"):
        draw_scenarios(STRATEGY, remember, num_examples=30, seed=0)
    assert len(scenarios) == 3


@pytest.mark.parametrize("seed", [0, 1])
def test_same_seed_draws_the_same_cases(seed):
    assert drawn(seed=seed) == drawn(seed=seed)


def test_other_seed_draws_other_cases():
    assert drawn(seed=0) != drawn(seed=1)


@pytest.mark.parametrize("num_examples", [1, 2, 17])
def test_as_many_cases_are_drawn_as_were_asked_for(num_examples):
    assert len(drawn(num_examples=num_examples)) == num_examples


def test_first_case_is_the_smallest():
    assert drawn(num_examples=1) == [SMALLEST]


def test_smallest_failing_case_is_found():
    scenario, failure = shrunk(refuse_long)
    assert failure.scenario is not None
    assert (len(failure.scenario.requests), num_tokens(failure.scenario)) == (3, 6)
    assert num_tokens(scenario) > 6
    assert failure.message == "6 tokens"


def test_case_that_cannot_be_smaller_is_the_result():
    def refuse_all(scenario):
        message = f"{len(scenario.requests)} requests"
        raise CheckFailed(message)

    scenario, failure = shrunk(refuse_all)
    assert scenario == failure.scenario == SMALLEST
    assert failure.message == "1 requests"


def test_cases_before_the_failing_one_are_not_checked_again():
    """Drawing them costs little; checking them could cost minutes."""
    checked = []

    def refuse_and_count(scenario):
        checked.append(scenario)
        refuse_long(scenario)

    scenario, _ = shrunk(refuse_and_count)
    second_time = checked.index(scenario) + 1
    assert checked[second_time] == scenario


def test_when_time_is_up_the_smallest_case_so_far_is_the_result():
    checked = []

    def refuse_and_count(scenario):
        checked.append(scenario)
        refuse_long(scenario)

    scenario, failure = shrunk(refuse_and_count, deadline=time.monotonic() - 1)
    assert failure.scenario == scenario
    assert failure.message == f"{num_tokens(scenario)} tokens"
    assert checked[-1] == scenario
    assert checked.count(scenario) == 2


def test_failure_that_comes_and_goes_is_reported_as_such():
    """Hypothesis calls it flaky; the case is kept, and the message says what was seen."""
    calls = []

    def refuse_every_other(scenario):
        calls.append(scenario)
        if num_tokens(scenario) > 3 and len(calls) % 2:
            message = "sometimes"
            raise CheckFailed(message)

    _, failure = shrunk(refuse_every_other)
    assert failure.scenario is not None
    assert failure.message.startswith("sometimes (not every time")


def test_failure_that_never_comes_back_is_reported_as_such():
    failed: list[object] = []

    def refuse_once(scenario):
        if not failed and num_tokens(scenario) > 3:
            failed.append(scenario)
            message = "once"
            raise CheckFailed(message)

    scenario, failure = shrunk(refuse_once)
    assert failure.scenario == scenario
    assert failure.message.startswith("once (not every time")


def test_a_smaller_case_that_cannot_be_judged_is_passed_over():
    scenario = next(scenario for scenario in drawn(num_examples=100) if len(scenario.requests) >= 4)

    def refuse(scenario):
        if len(scenario.requests) < 3:
            message = "no reference for so few requests"
            raise ReferenceUnavailable(message)
        if len(scenario.requests) >= 4:
            message = f"{len(scenario.requests)} requests"
            raise CheckFailed(message)

    search = ShrinkSearch(refuse, Failure("first", scenario), scenario, deadline=LONG)
    failure = search.run(STRATEGY, num_examples=100, seed=0)
    assert failure.message == "4 requests"

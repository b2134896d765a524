"""A failing schedule becomes as small as what it fails for."""

import time

import pytest

from oracle.choosers import RandomChooser
from oracle.engine_spec import EngineSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_shrinker import shrink
from oracle.schedule_strategies import choose_symbolic_schedule


def big(seed):
    return choose_symbolic_schedule(RandomChooser(seed))


@pytest.mark.parametrize("seed", range(5))
def test_without_a_need_nothing_is_left(seed):
    smallest = shrink(big(seed), lambda _: True, deadline=time.monotonic() + 20)
    assert smallest == Scenario((RequestSpec((0,)),), checkpoint=None, is_symbolic=True)


def test_what_a_failure_needs_stays():
    def fails(scenario):
        return scenario.engine.block_size == 2 and any(3 in request.prompt_token_ids for request in scenario.requests)

    first = next(scenario for scenario in map(big, range(200)) if fails(scenario))
    smallest = shrink(first, fails, deadline=time.monotonic() + 20)
    assert smallest.engine == EngineSpec(block_size=2)
    assert [request.prompt_token_ids for request in smallest.requests] == [(3,)]
    assert smallest.script == ()


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_what_takes_full_blocks_is_shown_in_small_ones(num_blocks):
    """In blocks of 16 it takes 17 tokens or more; small blocks are kept, since fewer tokens are then enough."""

    def fails(scenario):
        longest = max(len(request.prompt_token_ids) for request in scenario.requests)
        return longest > num_blocks * scenario.engine.block_size

    first = next(scenario for scenario in map(big, range(200)) if scenario.engine.block_size >= 8 and fails(scenario))
    smallest = shrink(first, fails, deadline=time.monotonic() + 20)
    assert smallest.engine == EngineSpec(block_size=smallest.engine.block_size)
    assert smallest.num_tokens <= 8


def test_time_ends_the_search():
    assert shrink(big(0), lambda _: True, deadline=time.monotonic() - 1) == big(0)


def guessing(seed):
    return choose_symbolic_schedule(RandomChooser(seed), is_speculative=True)


@pytest.mark.parametrize("seed", range(5))
def test_guesses_go_where_nothing_needs_them(seed):
    assert guessing(seed).engine.speculative is not None
    smallest = shrink(guessing(seed), lambda _: True, deadline=time.monotonic() + 20)
    assert smallest.engine == EngineSpec()


@pytest.mark.parametrize("needed", [("wrong",), ("end", "right")])
def test_guesses_become_as_few_as_a_failure_needs(needed):
    def fails(scenario):
        return scenario.engine.speculative == "scripted" and set(needed) <= set(scenario.engine.guesses)

    first = next(own for own in map(guessing, range(300)) if fails(own) and len(own.engine.guesses) > 3)
    smallest = shrink(first, fails, deadline=time.monotonic() + 20)
    assert sorted(smallest.engine.guesses) == sorted(needed)
    assert smallest.engine == EngineSpec(speculative="scripted", guesses=smallest.engine.guesses)
    assert smallest.requests == (RequestSpec((0,)),)


@pytest.mark.parametrize("seed", range(20))
def test_every_smaller_schedule_is_legal(seed):
    """A list of guesses is never emptied, which would be no script."""
    seen: list[Scenario] = []

    def fails(scenario):
        seen.append(scenario)
        return False

    first = guessing(seed)
    assert shrink(first, fails, deadline=time.monotonic() + 20) == first
    assert any(own.engine.speculative is None for own in seen)
    assert all(own.engine.guesses for own in seen)

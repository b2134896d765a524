"""What an engine has done, in numbers, and what happened in its latest steps."""

import pytest

from refinfer import SamplingParams
from refinfer.engine.statistics import Latencies


@pytest.fixture
def core(new_core):
    return new_core("paged", block_size=4, num_blocks=8, max_num_batched_tokens=5)


def test_stats_count_steps_tokens_and_blocks(core, states_of):
    (state,) = states_of(range(7), SamplingParams(max_tokens=3))
    core.add(state)
    assert (core.stats().num_waiting, core.stats().num_running, core.stats().num_blocks) == (1, 0, 8)
    core.step()
    stats = core.stats()
    assert (stats.num_steps, stats.num_scheduled_tokens, stats.num_emitted_tokens) == (1, 5, 0)
    assert (stats.num_waiting, stats.num_running, stats.num_used_blocks) == (0, 1, 2)
    assert (stats.used_slots, stats.reserved_slots, stats.mean_ttft) == (5, 8, None)
    while core.has_unfinished_requests():
        core.step()
    stats = core.stats()
    assert (stats.num_steps, stats.num_scheduled_tokens, stats.num_emitted_tokens) == (4, 9, 3)
    assert (stats.max_step_tokens, stats.used_slots, stats.reserved_slots) == (5, 5 + 7 + 8 + 9, 8 + 8 + 8 + 12)
    assert (stats.num_running, stats.num_used_blocks, stats.num_cached_blocks) == (0, 0, 2)
    assert stats.mean_ttft is not None
    assert 0 <= stats.mean_itl <= stats.max_itl


def test_stats_count_hits_forks_copies_and_preemptions(core, states_of):
    states = states_of(range(7), SamplingParams(max_tokens=12, n=3))
    for state in states:
        core.add(state)
    while core.has_unfinished_requests():
        core.step()
    stats = core.stats()
    assert stats.num_forks >= 2
    assert stats.num_copied_blocks >= 2
    assert stats.num_preemptions == sum(state.num_preemptions for state in states) > 0
    assert (stats.num_hit_tokens > 0, stats.num_swaps) == (True, 0)


def test_events_name_who_ran_came_and_ended(core, states_of):
    (state,) = states_of(range(7), SamplingParams(max_tokens=2), "me")
    core.add(state)
    while core.has_unfinished_requests():
        core.step()
    first, second, third = core.events
    assert (first.step, first.rows, first.admitted) == (0, (("me", 0, 5, ()),), (("me", 0),))
    assert (second.rows, second.admitted) == ((("me", 0, 2, tuple(state.output_token_ids[:1])),), ())
    assert (third.step, third.finished) == (2, (("me", 0, "length"),))


def test_step_that_fails_counts_nothing_as_run(model, core, states_of, failing):
    core.add(states_of([1, 2])[0])
    with failing(model, 1), pytest.raises(RuntimeError, match="planted"):
        core.step()
    assert (core.stats().num_steps, core.stats().num_scheduled_tokens, len(core.events)) == (0, 0, 0)
    core.step()
    assert (core.stats().num_steps, core.events[0].step) == (1, 1)


def test_latencies_tell_the_first_token_from_those_after_it(states_of):
    latencies = Latencies()
    (state,) = states_of([1])
    latencies.arrive(state, 10.0)
    assert (latencies.mean_ttft, latencies.mean_itl, latencies.max_itl) == (None, None, None)
    for now in (13.0, 14.0, 17.0):
        latencies.emit(state, now)
    assert (latencies.mean_ttft, latencies.mean_itl, latencies.max_itl) == (3.0, 2.0, 3.0)
    latencies.leave(state)
    with pytest.raises(KeyError):
        latencies.emit(state, 18.0)

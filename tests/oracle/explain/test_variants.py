from dataclasses import replace

from oracle.explain.variants import schedules_for
from oracle.sampling_spec import SamplingSpec


def test_schedule_is_looked_for_in_itself(schedule):
    assert list(schedules_for(schedule, "schedules")) == [schedule]


def test_state_is_looked_for_under_the_policy_alone(schedule):
    (scenario,) = schedules_for(schedule, "state")
    assert (scenario.script, scenario.is_symbolic) == ((), True)


def test_properties_without_a_schedule_run_greedily_in_their_own_chunks(schedule):
    cut = replace(schedule, requests=tuple(replace(own, cuts=(2,)) for own in schedule.requests))
    plain, turned, chunked, *_ = schedules_for(cut, "bits")
    assert {request.sampling for request in plain.requests} == {SamplingSpec()}
    assert turned.requests == plain.requests[::-1]
    assert [step.caps for step in chunked.script] == [(2, 2), (6, 4)]

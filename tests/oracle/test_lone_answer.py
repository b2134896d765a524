"""A request alone gives what the engine gives it without a cache."""

import pytest
from hypothesis import given

from oracle.drive import Drive
from oracle.lone_answer import Surroundings, end_after
from oracle.sampling_spec import SamplingSpec
from oracle.schedule_core import requests_of, symbolic_core
from oracle.schedule_strategies import symbolic_schedules
from oracle.symbolic_check import symbolic_answers
from refinfer.sampling import Finish, FinishReason
from refinfer.scheduler import Request


@given(scenario=symbolic_schedules())
def test_answer_alone_is_the_engines_without_a_cache(scenario):
    answers = symbolic_answers(scenario)
    for place in range(len(scenario.requests)):
        alone = scenario.alone(place)
        drive = Drive(symbolic_core(alone, "none"), alone, requests_of(scenario)[place : place + 1])
        drive._aborts.clear()
        drive.run()
        for own, expected in zip(drive.driven[0].samples(), answers[place], strict=True):
            assert own.output.token_ids == expected.output.token_ids or scenario.max_model_len != alone.max_model_len
            assert own.prompt_logprobs == expected.prompt_logprobs


STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


@pytest.mark.parametrize(
    ("parameters", "ignore_eos", "output", "end"),
    [
        ({}, False, (3, 4), None),
        ({}, False, (3, 15), Finish(STOP)),
        ({}, True, (3, 15), None),
        ({}, False, (3, 4, 5, 6), Finish(LENGTH)),
        ({}, False, (3, 4, 5, 15), Finish(STOP)),
        ({"stop_token_ids": (0,)}, False, (3, 0), Finish(STOP, 0)),
        ({"stop_token_ids": (15,)}, False, (15,), Finish(STOP)),
        ({"stop_token_ids": (15,)}, True, (15,), Finish(STOP, 15)),
        ({"min_tokens": 2}, False, (3, 15), None),
        ({"min_tokens": 2}, False, (3, 4, 15), Finish(STOP)),
        ({"min_tokens": 4, "stop_token_ids": (0,)}, False, (3, 4, 0, 0), Finish(LENGTH)),
    ],
)
def test_end_follows_from_the_tokens(parameters, ignore_eos, output, end):
    params = SamplingSpec(**parameters).params(4, ignore_eos=ignore_eos)
    around = Surroundings(frozenset({15}), 20, None)
    assert end_after(Request("a", None, (1, 2), params), (1, 2, *output), around) == end


@pytest.mark.parametrize(("max_model_len", "end"), [(4, Finish(LENGTH)), (5, None)])
def test_longest_length_ends_a_request(max_model_len, end):
    params = SamplingSpec().params(9, ignore_eos=True)
    around = Surroundings(frozenset(), max_model_len, None)
    assert end_after(Request("a", None, (1, 2), params), (1, 2, 3, 4), around) == end

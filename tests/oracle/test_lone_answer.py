"""A request alone gives what the engine gives it without a cache."""

from hypothesis import given

from oracle.drive import Drive
from oracle.schedule_core import requests_of, symbolic_core
from oracle.schedule_strategies import symbolic_schedules
from oracle.symbolic_check import symbolic_answers


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

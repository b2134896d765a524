from dataclasses import replace

import pytest

from oracle.explain.ending_signs import due_end
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario

EOS = frozenset({15})


@pytest.mark.parametrize(
    ("spec", "token_ids", "due"),
    [
        (RequestSpec((1,), max_tokens=2), (3, 4, 5), (2, "length")),
        (RequestSpec((1,), max_tokens=9), (3, 15, 5), (2, "stop")),
        (RequestSpec((1,), max_tokens=9, ignore_eos=True), (3, 15), (3, "length")),
        (RequestSpec((1,), max_tokens=9, sampling=SamplingSpec(stop_token_ids=(3,))), (3, 4), (1, "stop")),
        (RequestSpec((1,), max_tokens=9, sampling=SamplingSpec(min_tokens=2)), (15, 15, 15), (3, "stop")),
    ],
)
def test_end_that_is_due_follows_from_the_parameters(spec, token_ids, due):
    assert due_end(spec, token_ids, EOS, max_model_len=20) == due


@pytest.mark.parametrize(("max_model_len", "due"), [(4, (3, "length")), (5, (4, "stop")), (6, (4, "stop"))])
def test_end_that_is_due_comes_no_later_than_at_the_longest_length(max_model_len, due):
    assert due_end(RequestSpec((1,), max_tokens=9), (3, 4, 5, 15, 6), EOS, max_model_len) == due


def asked(**parameters):
    """One request on the symbolic model."""
    request = RequestSpec((1, 2, 3), max_tokens=12, ignore_eos=True, sampling=SamplingSpec(**parameters))
    longer = RequestSpec((1,) * 9, max_tokens=12, ignore_eos=True)  # so that no other limit ends the first
    return Scenario(requests=(request, longer), checkpoint=None, is_symbolic=True)


@pytest.mark.parametrize(
    ("fault", "scenario", "component"),
    [
        ("one_token_past_max_tokens", asked(), "stop rules"),
        ("stop_token_ids_ignored", asked(stop_token_ids=tuple(range(15))), "stop rules"),
        ("rank_counts_equals", asked(logprobs=2), "log-probabilities"),
        ("logprobs_without_the_chosen_token", asked(logprobs=1, temperature=3.0, seed=2), "log-probabilities"),
    ],
)
def test_what_comes_out_wrongly_names_its_part(watched, fault, scenario, component):
    assert watched(scenario).signs == []
    assert watched(scenario, fault=fault).signs[0].suspect.component == component


@pytest.mark.parametrize("fault", ["rank_counts_equals", "logprobs_without_the_chosen_token"])
def test_wrong_scores_of_a_prompt_whose_rows_are_right_are_the_scorers(watched, fault):
    sign = watched(asked(prompt_logprobs=2), fault=fault).signs[0]
    assert "refinfer/sampling/logprobs.py" in sign.suspect.sources


def test_request_that_never_ends_is_the_schedulers(schedule, watched):
    requests = tuple(replace(request, arrival=0) for request in schedule.requests)
    sign = watched(replace(schedule, requests=requests), "static", "batch_ends_together").signs[0]
    assert "refinfer/scheduler/static.py" in sign.suspect.sources


def test_token_that_is_told_twice_is_the_answers(symbolic, watched):
    sampling = SamplingSpec(logprobs=1)
    scenario = replace(symbolic, requests=tuple(replace(own, sampling=sampling) for own in symbolic.requests))
    assert watched(scenario).signs == []
    signs = watched(scenario, fault="token_of_preempted_request_told_twice").signs
    assert signs[0].suspect.component == "answer"


@pytest.mark.parametrize(
    ("ignore_eos", "max_model_len", "number"), [(False, 99, 2), (True, 99, 4), (True, 4, 3)], ids=str
)
def test_request_ends_at_an_end_token_or_at_a_length(ignore_eos, max_model_len, number):
    spec = RequestSpec((3,), max_tokens=4, ignore_eos=ignore_eos)
    assert due_end(spec, (5, 7, 5, 5), frozenset({7}), max_model_len)[0] == number

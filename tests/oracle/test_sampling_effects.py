"""A parameter that does nothing is seen, and one that does is witnessed."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from oracle.errors import OutcomeMismatch
from oracle.lone_answer import Surroundings, answer_alone
from oracle.sampling_effects import OTHER_PARAMETERS, TOKEN_PARAMETERS, check_logprobs, drawn, effects_of
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import requests_of
from oracle.symbolic import VOCAB_SIZE
from oracle.symbolic_check import _Prefix

VALUES: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2.0},
    "top_k": {"temperature": 2.0, "top_k": 2},
    "top_p": {"temperature": 2.0, "top_p": 0.3},
    "min_p": {"temperature": 2.0, "min_p": 0.5},
    "repetition_penalty": {"repetition_penalty": 2.0},
    "presence_penalty": {"presence_penalty": 2.0},
    "frequency_penalty": {"frequency_penalty": 2.0},
    "logit_bias": {"logit_bias": ((3, 50.0),)},
    "min_tokens": {"min_tokens": 12, "stop_token_ids": tuple(range(8))},
    "logprobs": {"logprobs": 2},
    "prompt_logprobs": {"prompt_logprobs": 1},
}


def run_of(sampling):
    spec = RequestSpec((1, 2, 3), 12, ignore_eos=True, sampling=sampling)
    (request,) = requests_of(Scenario((spec,), checkpoint=None, is_symbolic=True))
    return spec, request, answer_alone(request, 0, _Prefix(None), Surroundings(frozenset(), 64, None))


def test_every_parameter_is_looked_for():
    assert {*TOKEN_PARAMETERS, *OTHER_PARAMETERS} == {field.name for field in fields(SamplingSpec)}
    assert set(TOKEN_PARAMETERS) <= set(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_effect_of_a_parameter_is_seen(name):
    spec, request, run = run_of(SamplingSpec(**VALUES[name]))
    assert name in effects_of(spec, request, run, frozenset())


@pytest.mark.parametrize("name", VALUES)
def test_parameter_without_effect_is_refused(name):
    """The run is one in which the parameter was accepted and passed over."""
    spec, request, _ = run_of(SamplingSpec(**VALUES[name]))
    _, _, ignored = run_of(replace(spec.sampling, **{name: getattr(SamplingSpec(), name)}))
    with pytest.raises(OutcomeMismatch):
        effects_of(spec, request, ignored, frozenset())


def test_drawn_takes_the_share_and_no_border():
    weights = [(2, 1.0), (0, 3.0)]
    assert [drawn(weights, uniform) for uniform in (0.0, 0.74, 0.75, 0.76)] == [0, 0, None, 2]


def test_check_logprobs_refuses_a_wrong_number():
    _, _, run = run_of(SamplingSpec(logprobs=2))
    rows = [row + np.arange(VOCAB_SIZE, dtype=np.float32) / 8 for row in run.logits]
    with pytest.raises(OutcomeMismatch):
        check_logprobs(run.output.logprobs, rows, 2, run.output.token_ids)


def test_check_logprobs_refuses_a_wrong_rank():
    _, _, run = run_of(SamplingSpec(logprobs=2))
    logprobs = [
        {listed: replace(entry, rank=entry.rank + 1) for listed, entry in own.items()}
        for own in run.output.logprobs or []
    ]
    with pytest.raises(OutcomeMismatch, match=r"has rank 2, and 1 was due"):
        check_logprobs(logprobs, run.logits, 2, run.output.token_ids)

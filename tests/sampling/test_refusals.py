"""Whatever sampling refuses comes with the values that the message shows."""

import math

import numpy as np
import pytest

from refinfer.errors import InvariantError, NoTokenLeftError, SamplingParamsError, TokenIdError
from refinfer.sampling.context import SampleContext
from refinfer.sampling.logits import highest_token_id, process_logits
from refinfer.sampling.logprobs import token_logprobs
from refinfer.sampling.params import SamplingParams, check_vocabulary

ROW = np.array([0.0, 1.0, -math.inf], dtype=np.float32)


def params(**values):
    return lambda: SamplingParams(**values)


def masked():
    context = SampleContext(SamplingParams(min_tokens=2), 0, 0, (0,), (), frozenset({0, 1}))
    return process_logits(ROW, context)


REFUSALS = {
    "unknown parameter": (params(max_token=3), SamplingParamsError, {"max_token": 3}),
    "flag": (params(ignore_eos=1), SamplingParamsError, {"ignore_eos": 1}),
    "least over most": (
        params(min_tokens=3, max_tokens=2),
        SamplingParamsError,
        {"min_tokens": 3, "max_tokens": 2},
    ),
    "number": (params(top_p=0), SamplingParamsError, {"top_p": 0}),
    "count": (params(n=0), SamplingParamsError, {"n": 0}),
    "top_k": (params(top_k=-2), SamplingParamsError, {"top_k": -2}),
    "seed": (params(seed=-1), SamplingParamsError, {"seed": -1}),
    "no mapping": (params(logit_bias=[1]), SamplingParamsError, {"logit_bias": [1]}),
    "bias": (params(logit_bias={4: math.inf}), SamplingParamsError, {"logit_bias": math.inf}),
    "empty stop string": (params(stop=["a", ""]), SamplingParamsError, {"stop": ["a", ""]}),
    "token id": (params(stop_token_ids=[-1]), SamplingParamsError, {"stop_token_ids": [-1]}),
    "bias of a token id": (params(logit_bias={-1: 1.0}), SamplingParamsError, {"logit_bias": [-1]}),
    "bias past the vocabulary": (
        lambda: check_vocabulary(SamplingParams(logit_bias={1: 1.0, 8: 1.0}), 8),
        SamplingParamsError,
        {"name": "logit_bias", "token_id": 8, "vocab_size": 8},
    ),
    "stop token past the vocabulary": (
        lambda: check_vocabulary(SamplingParams(stop_token_ids=[9, 7]), 8),
        SamplingParamsError,
        {"name": "stop_token_ids", "token_id": 9, "vocab_size": 8},
    ),
    "nothing but ends": (
        lambda: check_vocabulary(SamplingParams(min_tokens=1, stop_token_ids=[0]), 2, frozenset({1})),
        SamplingParamsError,
        {"min_tokens": 1, "vocab_size": 2},
    ),
    "NaN": (
        lambda: highest_token_id(np.array([0.0, math.nan], dtype=np.float32)),
        InvariantError,
        {"token_id": 1, "vocab_size": 2},
    ),
    "nothing but minus infinity": (
        lambda: highest_token_id(np.full(3, -math.inf, dtype=np.float32)),
        InvariantError,
        {"vocab_size": 3},
    ),
    "nothing left": (masked, NoTokenLeftError, {"vocab_size": 3, "min_tokens": 2}),
    "token without a logit": (lambda: token_logprobs(ROW, 3, 1), TokenIdError, {"token_id": 3, "vocab_size": 3}),
}
"""By name: what is refused, the error, and the values that it has to give."""


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.usefixtures("_without_shape_checks")
def test_refusal_gives_the_values_that_it_shows(name, refusal_of):
    action, kind, values = REFUSALS[name]
    found, found_values, message, _ = refusal_of(action)
    assert (found, found_values) == (kind, values)
    assert message not in ("", "None")


@pytest.mark.usefixtures("_without_shape_checks")
def test_no_refusal_is_left_out(refusal_of, refusals_in):
    assert {refusal_of(action)[3] for action, _, _ in REFUSALS.values()} == refusals_in("refinfer.sampling")

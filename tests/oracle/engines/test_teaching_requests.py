from typing import Any

import pytest

from oracle.engines.messages import EngineRequest
from oracle.engines.parameters import PARAMETERS
from oracle.engines.teaching_requests import LEGAL_BY_PARAMETER, fault_of

LEGAL: dict[str, list[Any]] = {
    "temperature": [0, 0.5, 2.0],
    "top_k": [0, 7, 10**6],
    "seed": [None, 0, 2**64],
    "n": [1, 3],
    "repetition_penalty": [0.1, 1, 2.0],
    "logit_bias": [None, [], [[1, 2.0], (3, -1)]],
    "min_tokens": [0, 4],
    "ignore_eos": [True, False],
    "stop_token_ids": [None, [], [1, 70]],
    "logprobs": [None, 0, 5],
    "logits": [True, False],
    "cache_salt": [None, "one"],
}

ILLEGAL: dict[str, list[Any]] = {
    "temperature": [-1.0, float("nan"), "1"],
    "top_k": [-1, 1.5, True],
    "seed": [-1, 0.5],
    "n": [0],
    "repetition_penalty": [0.0, -1.0],
    "logit_bias": [5, [1], [[]], [[1]], [[1, 2.0, 3.0]], [[1, "a"]], [[1.5, 2.0]]],
    "min_tokens": [-1],
    "ignore_eos": [1, None],
    "stop_token_ids": [5, [-1]],
    "logprobs": [-1],
    "logits": [None],
    "cache_salt": [5],
}


def fault(prompt=(5, 3), max_tokens=4, **parameters):
    return fault_of(EngineRequest("r0", prompt, max_tokens, parameters), vocab_size=71, max_model_len=16)


def test_parameters_are_those_of_the_protocol_and_all_are_tried_here():
    assert set(LEGAL_BY_PARAMETER) == set(LEGAL) == set(ILLEGAL)
    assert set(LEGAL_BY_PARAMETER) <= set(PARAMETERS)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in LEGAL.items() for value in values])
def test_fault_of_takes_what_means_something(name, value):
    assert fault(**{name: value}) is None


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ILLEGAL.items() for value in values])
def test_fault_of_refuses_what_means_nothing(name, value):
    assert f"{name} is {value!r}; it must be " in fault(**{name: value})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"top_p": 0.5}, "top_p is none of temperature"),
        ({"prompt": ()}, "there are 0 prompt tokens and 4 to come"),
        ({"max_tokens": 0}, "there are 2 prompt tokens and 0 to come"),
        ({"max_tokens": 15}, "2 prompt tokens and 15 to come are more than 16"),
        ({"min_tokens": 5}, "min_tokens is 5, more than max_tokens, which is 4"),
        ({"prompt": (5, 71)}, "token id 71 is none of the 71"),
        ({"prompt": (5, -1)}, "token id -1 is none"),
        ({"logit_bias": [[71, 1.0]]}, "token id 71 is none"),
        ({"stop_token_ids": [71]}, "token id 71 is none"),
    ],
)
def test_fault_of_refuses_what_does_not_fit(values, words):
    assert fault(**values).startswith(words)


def test_fault_of_takes_a_request_as_long_as_may_be():
    assert fault(max_tokens=14) is None

"""A request is written in the dialect of its server, and nothing that it asks for is left out."""

import pytest

from oracle.engines.adapters.openai_dialect import (
    EXTENSIONS,
    ID_FIELDS,
    STANDARD_PARAMETERS,
    Dialect,
    completion_body,
    prompt_text,
)
from oracle.engines.messages import EngineRequest
from oracle.engines.parameters import PARAMETERS

EVERYTHING = Dialect("toy", logprobs="count", extensions=EXTENSIONS)


def body_of(dialect=EVERYTHING, **parameters):
    return completion_body(EngineRequest("a", (5, 6, 7), 4, parameters), dialect)


def test_names_are_the_harness_own():
    assert {*STANDARD_PARAMETERS, *EXTENSIONS} <= set(PARAMETERS)


def test_body_says_what_other_servers_might_take_from_their_model():
    assert body_of() == {
        "model": "toy",
        "prompt": [5, 6, 7],
        "max_tokens": 4,
        **dict.fromkeys(ID_FIELDS, True),
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }


def test_body_leaves_defaults_out_that_the_server_does_not_know():
    body = body_of(Dialect("toy", id_fields=()))
    assert body == {"model": "toy", "prompt": [5, 6, 7], "max_tokens": 4, "temperature": 0.0, "top_p": 1.0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.7),
        ("seed", 0),
        ("n", 2),
        ("stop_token_ids", [3]),
        ("ignore_eos", True),
        ("cache_salt", "a"),
        ("no_repeat_ngram_size", 2),
    ],
)
def test_body_hands_every_parameter_through(name, value):
    """Also one that the server was not seen to read: then it is the server that passes it over, or refuses it."""
    assert body_of(Dialect("toy"), **{name: value})[name] == value


def test_body_writes_a_bias_as_the_protocol_has_it():
    assert body_of(logit_bias=[[5, -1.5], [6, 2.0]])["logit_bias"] == {"5": -1.5, "6": 2.0}


@pytest.mark.parametrize(
    ("way", "needed", "asked", "fields"),
    [
        ("count", False, None, {}),
        ("count", False, 0, {"logprobs": 0}),
        ("count", False, 3, {"logprobs": 3}),
        ("flag", False, 3, {"logprobs": True, "top_logprobs": 3}),
        ("flag", True, None, {"logprobs": True, "top_logprobs": 1}),
        ("count", True, 0, {"logprobs": 1}),
        ("count", True, 3, {"logprobs": 3}),
    ],
)
def test_log_probabilities_are_asked_for_in_the_servers_way(way, needed, asked, fields):
    body = body_of(Dialect("toy", logprobs=way, ids_need_logprobs=needed), logprobs=asked)
    assert {key: value for key, value in body.items() if "logprobs" in key} == fields


def test_prompt_can_be_text_that_begins_alike_where_the_ids_do():
    assert body_of(Dialect("toy", takes_ids=False))["prompt"] == "5 6 7"
    assert prompt_text((5, 6, 7, 8)).startswith(prompt_text((5, 6, 7)))

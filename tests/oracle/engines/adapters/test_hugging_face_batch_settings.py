"""A request's words go to its manager or to `add_request`, and what neither takes is named."""

import pytest

from oracle.contract.constructions import covering_array, is_excluded
from oracle.engines.adapters.hugging_face_batch_settings import (
    FAMILIES,
    KNOBS,
    MAX_MODEL_LEN,
    PARAMETERS,
    batching_arguments,
    declaration_of,
    generation_arguments,
    manager_parameters,
    request_arguments,
    unknown_parameters,
)
from oracle.engines.parameters import PARAMETERS as KNOWN_PARAMETERS
from oracle.family_shapes import FAMILIES as KNOWN_FAMILIES

GREEDY = {"is_sampled": False, "n": 1, "return_logprobs": False}
SAMPLED = {"is_sampled": True, "n": 2, "return_logprobs": True}


def test_names_are_the_harness_own():
    assert set(PARAMETERS) <= set(KNOWN_PARAMETERS)
    assert set(FAMILIES) <= set(KNOWN_FAMILIES)


def test_declaration_can_be_checked_and_every_family_opened():
    declaration = declaration_of("5.0")
    declaration.check()
    rows = covering_array(declaration)
    for family in declaration.families:
        assert any(not is_excluded(declaration, {**row, "family": family}) for row in rows)


def test_every_pool_that_is_drawn_holds_the_longest_request():
    for row in covering_array(declaration_of("5.0")):
        assert row["page_size"] * row["num_blocks"] >= MAX_MODEL_LEN


def test_manager_fixes_whether_tokens_are_drawn_and_how_many_answers_there_are():
    assert manager_parameters({}, return_logprobs=False) == GREEDY
    assert manager_parameters({"temperature": 1.0, "n": 2}, return_logprobs=True) == SAMPLED


def test_greedy_manager_has_no_processors():
    assert generation_arguments(GREEDY, 131) == {
        "do_sample": False,
        "num_return_sequences": 1,
        "eos_token_id": -1,
        "max_new_tokens": 1,
    }


def test_drawing_manager_has_each_processor_that_requests_choose_for():
    arguments = generation_arguments(SAMPLED, 131)
    assert arguments["temperature"] != 1.0
    assert arguments["top_p"] < 1.0
    assert (arguments["do_sample"], arguments["top_k"], arguments["num_return_sequences"]) == (True, 131, 2)


def test_knobs_are_settings_of_the_manager():
    knobs = {name: values[0] for name, values in KNOBS.items()}
    arguments = batching_arguments(knobs, SAMPLED)
    assert {name: arguments[name] for name in knobs if name != "attn_implementation"} == {
        name: value for name, value in knobs.items() if name != "attn_implementation"
    }
    assert arguments["return_logprobs"] is True
    assert "attn_implementation" not in arguments


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {}),
        ({"top_k": 3}, {}),
        ({"temperature": 2}, {"temperature": 2.0, "top_p": 1.0}),
        ({"temperature": -1.0, "top_k": -5}, {"temperature": -1.0, "top_p": 1.0, "top_k": -5}),
        ({"temperature": 1.0, "top_k": 0, "top_p": 0.5}, {"temperature": 1.0, "top_p": 0.5, "top_k": 0}),
    ],
    ids=["greedy", "greedy-filter", "no-filter", "illegal", "all"],
)
def test_request_chooses_for_itself(parameters, expected):
    assert request_arguments(parameters) == expected


def test_what_no_request_of_a_manager_can_have_is_named():
    assert unknown_parameters({"top_k": 1, "seed": 1, "repetition_penalty": 2.0}) == ["repetition_penalty", "seed"]

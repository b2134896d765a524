"""Every word of a request becomes one of `GenerationConfig`, and nothing else is set."""

import pytest

from oracle.contract.constructions import covering_array, is_excluded
from oracle.engines.adapters.hugging_face_settings import (
    FAMILIES,
    KNOBS_ALONE,
    KNOBS_PADDED,
    PARAMETER_ORDER,
    PARAMETERS,
    declaration_alone,
    declaration_padded,
    generation_arguments,
    knob_arguments,
    pad_token_id_of,
    stop_token_ids_of,
)
from oracle.engines.parameters import PARAMETERS as KNOWN_PARAMETERS
from oracle.family_shapes import FAMILIES as KNOWN_FAMILIES

SILENT = {
    "max_new_tokens": 4,
    "do_sample": False,
    "eos_token_id": None,
    "num_return_sequences": 1,
    "return_dict_in_generate": True,
    "output_scores": False,
    "output_logits": False,
    "disable_compile": True,
}

SIMPLEST = {name: values[0] for name, values in KNOBS_ALONE.items()}


def test_names_are_the_harness_own():
    assert set(PARAMETERS) <= set(KNOWN_PARAMETERS)
    assert set(PARAMETER_ORDER) <= set(PARAMETERS)
    assert set(FAMILIES) <= set(KNOWN_FAMILIES)


@pytest.mark.parametrize("declare", [declaration_alone, declaration_padded])
def test_declaration_can_be_checked_and_opened(declare):
    declaration = declare("5.0")
    declaration.check()
    rows = covering_array(declaration)
    for family in declaration.families:
        assert any(not is_excluded(declaration, {**row, "family": family}) for row in rows)


def test_what_a_request_does_not_name_stays_unset():
    assert generation_arguments({}, 4, []) == SILENT


def test_drawing_turns_off_the_filters_that_are_on_by_default():
    """`generate` keeps 50 tokens unless told otherwise, and a request that names no filter asks for none."""
    arguments = generation_arguments({"temperature": 2}, 4, [])
    assert arguments == {**SILENT, "do_sample": True, "temperature": 2.0, "top_k": 0, "top_p": 1.0}


@pytest.mark.parametrize(
    ("name", "value", "own", "expected"),
    [
        ("n", 2, "num_return_sequences", 2),
        ("repetition_penalty", 0.0, "repetition_penalty", 0.0),
        ("no_repeat_ngram_size", 3, "no_repeat_ngram_size", 3),
        ("min_tokens", -1, "min_new_tokens", -1),
        ("logit_bias", [[5, 1]], "sequence_bias", [[[5], 1.0]]),
        ("bad_token_sequences", ((5, 6), (7,)), "bad_words_ids", [[5, 6], [7]]),
        ("logprobs", 0, "output_scores", True),
        ("logits", True, "output_logits", True),
    ],
)
def test_each_parameter_becomes_its_own_argument(name, value, own, expected):
    assert generation_arguments({name: value}, 4, []) == {**SILENT, own: expected}


@pytest.mark.parametrize(("name", "value"), [("top_k", -5), ("top_p", 1.5), ("min_p", 0.1)])
def test_each_filter_is_passed_on_as_it_is(name, value):
    assert generation_arguments({"temperature": 1.0, name: value}, 4, [])[name] == value


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [7, 19]),
        ({"ignore_eos": True}, []),
        ({"stop_token_ids": [5, 7]}, [7, 19, 5]),
        ({"ignore_eos": True, "stop_token_ids": [5]}, [5]),
    ],
)
def test_stop_tokens_stand_beside_eos(parameters, expected):
    assert stop_token_ids_of(parameters, [7, 19]) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("attn_implementation", "eager", {}),
        ("cache_implementation", "static", {"cache_implementation": "static"}),
        ("use_cache", False, {"use_cache": False}),
        ("prefill_chunk_size", 3, {"prefill_chunk_size": 3}),
        ("speculation", "prompt-lookup", {"prompt_lookup_num_tokens": 3}),
        ("speculation", "assistant", {}),
        ("speculation", "early-exit", {"assistant_early_exit": 1}),
    ],
)
def test_each_knob_becomes_its_own_argument(name, value, expected):
    assert knob_arguments({**SIMPLEST, name: value}) == {"use_cache": True, **expected}


def test_knobs_of_a_padded_batch_know_no_speculation():
    assert "speculation" not in KNOBS_PADDED


@pytest.mark.parametrize(("word", "stops", "expected"), [("zero", [7], 0), ("end", [7, 9], 7), ("end", [], 0)])
def test_pad_token_is_the_one_that_is_named(word, stops, expected):
    assert pad_token_id_of(word, stops) == expected

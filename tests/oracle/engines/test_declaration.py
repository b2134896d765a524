"""A declaration is the same after a trip through JSON, and words that the harness does not know are refused."""

import json
from dataclasses import replace

import pytest

from oracle.engines.declaration import EngineDeclaration

FULL = EngineDeclaration(
    "full",
    "1.0",
    "bitwise",
    capabilities=("logprobs", "batching"),
    parameters=("top_k",),
    parameter_values={"top_k": [1, 2]},
    excluded_parameters=(("top_k", "top_p"),),
    needed_parameters={"top_k": "temperature"},
    knobs={"block_size": [16, 4], "draft": [None, "ngram"]},
    excluded_knobs=({"block_size": 4, "family": "gemma2"},),
    families=("llama", "gemma2"),
    head_dims=(32, 64),
)


def test_declaration_is_the_same_after_a_trip_through_json():
    assert EngineDeclaration.from_data(json.loads(json.dumps(FULL.to_data()))) == FULL


def test_name_is_enough():
    assert EngineDeclaration.from_data({"name": "bare"}) == EngineDeclaration("bare")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contract": "perfect"}, "contract 'perfect' is none of bitwise"),
        ({"capabilities": ["telepathy"]}, "capabilities 'telepathy' is none of"),
        ({"ignore_eos": "sometimes"}, "ignore_eos"),
        ({"scores_of": "luck"}, "scores_of"),
        ({"dtype": "int4"}, "dtype"),
        ({"surprise": 1}, "no field surprise"),
        ({"parameters": ["topk"]}, "parameters 'topk' is none of temperature, top_k"),
        ({"parameter_values": {"topk": [1]}}, "parameter_values 'topk'"),
        ({"parameter_order": ["bias"]}, "parameter_order 'bias'"),
        ({"excluded_parameters": [["top_k", "topp"]]}, "excluded_parameters 'topp'"),
        ({"needed_parameters": {"n": "heat"}}, "needed_parameters 'heat'"),
        ({"knobs": {"block_size": [16], "draft": []}}, "knob draft has no value"),
        ({"knobs_without_parameters": [{"knobs": {}, "parameters": ["many"]}]}, "knobs_without_parameters 'many'"),
        ({"families": ["lama"]}, "family 'lama' is none of llama, mistral"),
        ({"families": ["llama:odd"]}, "family 'llama:odd'"),
    ],
)
def test_unknown_words_are_refused_by_name(change, words):
    with pytest.raises(ValueError, match=words):
        EngineDeclaration.from_data({"name": "x", **change})


def test_declaration_without_a_name_is_refused():
    with pytest.raises(ValueError, match="needs a name"):
        EngineDeclaration.from_data({})


def test_check_sees_what_a_class_was_given():
    with pytest.raises(ValueError, match="contract"):
        replace(FULL, contract="perfect").check()


@pytest.mark.parametrize(
    ("knobs", "parameters"),
    [({"draft": "none", "size": 1}, ("n", "seed")), ({"draft": "lookup", "size": 1}, ("seed",)), ({}, ("n", "seed"))],
    ids=["another setting", "that setting", "none"],
)
def test_way_of_opening_takes_parameters_away(knobs, parameters):
    lacking = ({"knobs": {"draft": "lookup"}, "parameters": ["n"]},)
    declaration = EngineDeclaration("engine", parameters=("n", "seed"), knobs_without_parameters=lacking)
    assert declaration.opened_with(knobs).parameters == parameters

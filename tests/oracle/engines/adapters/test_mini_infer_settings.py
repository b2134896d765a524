"""A request's words become those of mini-infer's `SamplingParams`."""

import pytest

from oracle.contract.constructions import covering_array
from oracle.engines.adapters.mini_infer_settings import (
    CONFIG_FORMATS,
    MAX_MODEL_LEN,
    PARAMETERS,
    declaration_of,
    eos_token_ids_of,
    legacy_config,
    sampling_arguments,
    to_output,
    unknown_parameters,
)
from oracle.engines.messages import EngineRequest
from oracle.engines.parameters import PARAMETERS as KNOWN_PARAMETERS
from oracle.family_shapes import FAMILIES as KNOWN_FAMILIES


def arguments_of(**parameters):
    return sampling_arguments(EngineRequest("a", (5,), 4, parameters), (7, 9))


def test_declaration_can_be_checked_and_names_are_the_harness_own():
    declaration = declaration_of("0.2.5")
    declaration.check()
    assert set(PARAMETERS) <= set(KNOWN_PARAMETERS)
    assert set(declaration.families) <= set(KNOWN_FAMILIES)


def test_every_pool_that_is_drawn_holds_the_longest_request():
    for row in covering_array(declaration_of("0.2.5")):
        assert row["block_size"] * row["num_blocks"] >= MAX_MODEL_LEN


def test_newer_configurations_are_tried_with_the_simplest_settings_only():
    rows = [row for row in covering_array(declaration_of("0.2.5")) if row["config_format"] == CONFIG_FORMATS[1]]
    assert len(rows) == 1


def test_what_a_request_does_not_name_stays_unset():
    assert arguments_of() == {"max_tokens": 4, "stop_token_ids": {7, 9}}


@pytest.mark.parametrize(("name", "value"), [("temperature", -1.0), ("top_k", 0), ("top_p", 1.5), ("min_p", 0.5)])
def test_each_parameter_is_passed_on_as_it_is(name, value):
    assert arguments_of(**{name: value})[name] == value


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"ignore_eos": True}, set()),
        ({"stop_token_ids": [5]}, {5, 7, 9}),
        ({"stop_token_ids": [5], "ignore_eos": True}, {5}),
    ],
)
def test_stop_tokens_stand_beside_eos(parameters, expected):
    assert arguments_of(**parameters)["stop_token_ids"] == expected


def test_what_it_does_not_have_is_named():
    assert unknown_parameters(EngineRequest("a", (5,), 4, {"top_k": 1, "seed": 1, "n": 2})) == ["n", "seed"]


@pytest.mark.parametrize(("value", "expected"), [(None, ()), (7, (7,)), ([7, 9], (7, 9))])
def test_eos_is_one_id_or_several_or_none(value, expected):
    assert eos_token_ids_of({"eos_token_id": value}) == expected


def test_legacy_config_has_the_base_of_rope_at_the_top():
    newer = {"rope_parameters": {"rope_theta": 3.0}, "x": 1}
    assert legacy_config(newer) == {**newer, "rope_theta": 3.0}
    assert legacy_config({"rope_theta": 5.0}) == {"rope_theta": 5.0}


def test_to_output_tells_no_reason():
    (sample,) = to_output("a", [3, 4]).samples
    assert (sample.token_ids, sample.finish_reason) == ((3, 4), None)

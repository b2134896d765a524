import pytest

from oracle.engines.adapters.mlx_lm_settings import (
    KNOBS,
    MAX_MODEL_LEN,
    Transcript,
    count_guesses,
    declaration_of,
    eos_token_ids_of,
    likeliest,
    processor_arguments,
    sampler_arguments,
    segments_of,
    stop_token_ids_of,
    unknown_parameters,
)
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest
from oracle.engines.parameters import PARAMETERS
from oracle.family_shapes import FAMILIES


def test_declaration_survives_the_way_to_the_harness():
    declaration = declaration_of("1.2.3")
    assert EngineDeclaration.from_data(declaration.to_data()).version == "1.2.3"


def test_declaration_names_only_what_the_harness_knows():
    declaration = declaration_of("")
    assert set(declaration.parameters) <= set(PARAMETERS)
    assert set(declaration.families) <= set(FAMILIES)
    assert all(set(excluded) <= {*KNOBS, "family"} for excluded in declaration.excluded_knobs)


@pytest.mark.parametrize(
    ("way", "name"),
    [("single", "draft"), ("single", "segment_size"), ("batch", "num_draft_tokens"), ("speculative", "max_kv_size")],
)
def test_declaration_excludes_settings_that_mean_nothing(way, name):
    excluded = declaration_of("").excluded_knobs
    assert {"way": way, name: KNOBS[name][1]} in excluded
    assert {"way": way, name: KNOBS[name][0]} not in excluded


def test_declaration_excludes_guesses_for_a_state_that_cannot_be_taken_back():
    assert {"way": "speculative", "family": "mamba"} in declaration_of("").excluded_knobs


def test_a_rotating_cache_is_longer_than_any_request():
    assert all(size is None or size > MAX_MODEL_LEN for size in KNOBS["max_kv_size"])


def test_sampler_arguments_name_only_what_is_asked_for():
    assert sampler_arguments({"temperature": 0.5, "top_k": 3, "seed": 1}) == {"temp": 0.5, "top_k": 3}
    assert sampler_arguments({}) == {}


def test_processor_arguments_widen_the_windows_to_whole_requests():
    assert processor_arguments({"repetition_penalty": 1.5, "frequency_penalty": -0.5}) == {
        "repetition_penalty": 1.5,
        "repetition_context_size": MAX_MODEL_LEN,
        "frequency_penalty": -0.5,
        "frequency_context_size": MAX_MODEL_LEN,
    }


def test_processor_arguments_make_a_dictionary_of_biases():
    assert processor_arguments({"logit_bias": [[3, 1], [5, -2.0]]}) == {"logit_bias": {3: 1.0, 5: -2.0}}
    assert processor_arguments({"logit_bias": None}) == {}


@pytest.mark.parametrize(("value", "expected"), [(None, ()), (7, (7,)), ([7, 9], (7, 9))])
def test_eos_token_ids_of_reads_each_form(value, expected):
    assert eos_token_ids_of({"eos_token_id": value}) == expected


def test_stop_token_ids_of_leaves_eos_out_where_it_is_ignored():
    assert stop_token_ids_of({"stop_token_ids": [3]}, (7,)) == {3, 7}
    assert stop_token_ids_of({"stop_token_ids": [3], "ignore_eos": True}, (7,)) == {3}


def test_segments_of_cuts_a_prompt_without_loss():
    assert segments_of((1, 2, 3, 4, 5), 2) == [[1, 2], [3, 4], [5]]
    assert segments_of((1, 2), None) == [[1, 2]]
    assert segments_of((), None) == []


def test_unknown_parameters_are_named():
    assert unknown_parameters(EngineRequest("r", (1,), 1, {"n": 2, "top_k": 1, "choices": []})) == ["choices", "n"]


def test_likeliest_takes_the_lower_of_equal_ids():
    assert likeliest([-1.0, -0.5, -0.5, -2.0], 2) == {1: -0.5, 2: -0.5}
    assert likeliest([-1.0], 0) == {}


def test_transcript_gives_scores_only_where_they_are_asked_for():
    plain = Transcript(EngineRequest("r", (1,), 2), [3, 4], finish_reason="length")
    assert plain.output().samples[0].logprobs is None
    scored = Transcript(EngineRequest("r", (1,), 1, {"logprobs": 1}), [1], [[-2.0, -1.0]], "stop")
    sample = scored.output().samples[0]
    assert (sample.logprobs, sample.top_logprobs, sample.stop_token_id) == ((-1.0,), ({1: -1.0},), 1)


def test_transcript_is_due_to_abort_after_its_tokens():
    transcript = Transcript(EngineRequest("r", (1,), 9, abort_after=2), [5])
    assert not transcript.is_due_to_abort
    transcript.token_ids.append(6)
    assert transcript.is_due_to_abort


@pytest.mark.parametrize(
    ("are_drafts", "expected"),
    [
        ((), (0, 0)),
        ((False, False), (0, 4)),
        ((True, True, False, True, False), (3, 1)),
        ((True, False, True, True), (3, 1)),
    ],
    ids=["nothing came", "all fell", "one of a round fell", "the last round was cut"],
)
def test_count_guesses_sees_what_stood_and_what_fell(are_drafts, expected):
    assert count_guesses(are_drafts, 2, 9) == expected


def test_count_guesses_knows_that_the_last_round_is_short():
    """Before the last of three tokens only one more fits, so that one was guessed and none fell."""
    assert count_guesses((True, True, False), 4, 3) == (2, 1)
    assert count_guesses((False, False, False), 4, 3) == (0, 6)

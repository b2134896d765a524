"""Every parameter reaches vLLM, by its name there, and none is left out in silence."""

import pytest

from oracle.engines.adapters.vllm_declaration import LOGITS, PLAIN, PROCESSED, SPECULATIVE
from oracle.engines.adapters.vllm_requests import biases_by_token, choice_texts, prompt_of, sampling_arguments
from oracle.engines.adapters.vllm_tokenizer import text_of

ELSEWHERE = {"choices", "priority", "cache_salt"}
"""What does not travel in `SamplingParams`, or as an object of its own."""


def test_greedy_is_asked_for_where_no_temperature_is_named():
    assert sampling_arguments({}, 5) == {"temperature": 0.0, "max_tokens": 5, "detokenize": False}


@pytest.mark.parametrize("name", ["top_k", "min_p", "seed", "n", "presence_penalty", "min_tokens", "stop_token_ids"])
def test_parameters_of_the_same_name_pass_unchanged(name):
    value = object()
    assert sampling_arguments({name: value}, 5)[name] is value


def test_logit_bias_becomes_a_mapping():
    assert sampling_arguments({"logit_bias": [[3, 1.5], [4, -2]]}, 5)["logit_bias"] == {3: 1.5, 4: -2.0}


def test_two_biases_of_one_token_are_refused():
    with pytest.raises(ValueError, match="one bias for each token"):
        biases_by_token([(3, 1.0), (3, 2.0)])


def test_bad_token_sequences_become_the_texts_that_stand_for_them():
    arguments = sampling_arguments({"bad_token_sequences": [[3], [4, 5]]}, 5)
    assert arguments["bad_words"] == [text_of([3]), text_of([4, 5])]


def test_logits_are_asked_for_as_all_log_probabilities():
    assert sampling_arguments({"logits": True}, 5)["logprobs"] == -1


def test_choices_become_the_texts_that_stand_for_them():
    assert choice_texts({"choices": [[3], [4, 5]]}) == [text_of([3]), text_of([4, 5])]
    assert choice_texts({}) is None


def test_a_salt_travels_with_the_prompt():
    assert prompt_of((1, 2), {"cache_salt": "one"}) == {"prompt_token_ids": [1, 2], "cache_salt": "one"}
    assert prompt_of((1, 2), {}) == {"prompt_token_ids": [1, 2]}


def test_a_parameter_that_vllm_lacks_is_refused():
    with pytest.raises(ValueError, match="no_repeat_ngram_size"):
        sampling_arguments({"no_repeat_ngram_size": 2}, 5)


@pytest.mark.parametrize("declaration", [PLAIN, SPECULATIVE, LOGITS, PROCESSED], ids=lambda item: item.name)
def test_every_declared_parameter_reaches_vllm(declaration):
    values = {"logit_bias": [[1, 1.0]], "bad_token_sequences": [[1]], "temperature": 0.5}
    for name in set(declaration.parameters) - ELSEWHERE:
        assert sampling_arguments({name: values.get(name, 1)}, 5) != sampling_arguments({}, 5), name


@pytest.mark.parametrize("declaration", [PLAIN, SPECULATIVE, LOGITS, PROCESSED], ids=lambda item: item.name)
def test_declarations_hold_words_of_the_protocol(declaration):
    declaration.check()
    assert set(declaration.parameter_order) <= {*PLAIN.parameters}

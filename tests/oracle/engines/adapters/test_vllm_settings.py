"""Every knob reaches vLLM, by its name there."""

from itertools import pairwise, product
from pathlib import Path

import pytest

from oracle.engines.adapters.vllm_declaration import BLOCK_SIZES, MAX_MODEL_LEN, PLAIN, SPECULATIVE
from oracle.engines.adapters.vllm_settings import settings_of, speculation_of

FOLDER, TOKENIZER = Path("model"), Path("tokenizer")


def settings(**knobs):
    return settings_of(knobs, FOLDER, TOKENIZER, "raw_logprobs")


def test_the_model_and_the_tokenizer_lie_apart():
    arguments = settings().arguments
    assert (arguments["model"], arguments["tokenizer"]) == ("model", "tokenizer")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("block_size", "block_size"),
        ("num_blocks", "num_gpu_blocks_override"),
        ("policy", "scheduling_policy"),
        ("reserve_full_prompt", "scheduler_reserve_full_isl"),
    ],
)
def test_knobs_have_vllms_names(name, other):
    value = object()
    assert settings(**{name: value}).arguments[other] is value


def test_splitting_of_keys_is_a_variable():
    assert settings(split_kv=False).environment == {"VLLM_CPU_ATTN_SPLIT_KV": "0"}


def test_an_unknown_knob_is_refused():
    with pytest.raises(ValueError, match="color"):
        settings(color=1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "ngram-3",
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3},
        ),
        (
            "ngram-5-of-4",
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 4, "prompt_lookup_max": 4},
        ),
        ("draft-2", {"method": "draft_model", "num_speculative_tokens": 2, "model": "model"}),
    ],
)
def test_speculation_is_named(name, expected):
    assert speculation_of(name, FOLDER) == expected


@pytest.mark.parametrize("name", ["", "ngram", "guess-3"])
def test_speculation_refuses_other_names(name):
    with pytest.raises(ValueError, match="no way of speculating"):
        speculation_of(name, FOLDER)


@pytest.mark.parametrize("declaration", [PLAIN, SPECULATIVE], ids=lambda item: item.name)
def test_every_value_of_every_knob_can_be_translated(declaration):
    for name, values in declaration.knobs.items():
        translated = [settings(**{name: value}) for value in values]
        assert all(one != other for one, other in pairwise(translated)), name


def test_every_pool_holds_the_longest_request_beside_the_null_block():
    for block_size, num_blocks in product(BLOCK_SIZES, PLAIN.knobs["num_blocks"]):
        assert (num_blocks - 1) * block_size >= MAX_MODEL_LEN

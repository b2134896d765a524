"""What is drawn is legal, simple first, and varied enough that no kind of case is left out."""

from collections import Counter
from itertools import product
from unittest import mock

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from oracle.check import Checker, CheckSettings
from oracle.checkpoints import CheckpointSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.strategies import checkpoint_specs, model_scenarios, requests, scenarios, texts
from oracle.subjects import MODES
from oracle.tiny_tokenizer import SPECIAL_TOKENS
from refinfer.config.rope_config import SUPPORTED_ROPE_TYPES

pytestmark = pytest.mark.without_shape_checks

EXACTLY = settings(database=None, phases=(Phase.generate, Phase.shrink))


@given(scenario=scenarios())
def test_every_request_is_legal_for_its_model(scenario):
    spec = scenario.checkpoint
    for request in scenario.requests:
        assert all(0 <= token_id < spec.vocab_size for token_id in request.prompt_token_ids)
        assert len(request.prompt_token_ids) + request.max_tokens <= spec.max_position_embeddings
        assert all(0 < cut < len(request.prompt_token_ids) for cut in request.cuts)
        assert list(request.cuts) == sorted(set(request.cuts))


@given(scenario=scenarios())
def test_texts_are_drawn_for_models_with_a_tokenizer_only(scenario):
    assert scenario.checkpoint.with_tokenizer or not scenario.texts


@given(spec=checkpoint_specs())
def test_eos_token_ids_are_in_the_vocabulary(spec):
    assert all(0 <= token_id < spec.vocab_size for token_id in spec.eos_token_ids)


@given(vocab_size=st.integers(1, 9), data=st.data())
def test_requests_keep_to_the_vocabulary_they_are_given(vocab_size, data):
    request = data.draw(requests(vocab_size, max_prompt_tokens=3, max_tokens=2))
    assert max(request.prompt_token_ids) < vocab_size
    assert len(request.prompt_token_ids) <= 3
    assert 1 <= request.max_tokens <= 2


@given(scenario=model_scenarios(vocab_size=7, dtypes=("float64",)))
def test_scenarios_for_a_given_model_name_no_checkpoint(scenario):
    assert scenario.checkpoint is None
    assert scenario.dtype == "float64"
    assert max(max(request.prompt_token_ids) for request in scenario.requests) < 7


def test_simplest_scenario_is_one_request_of_one_token_on_the_simplest_model():
    simplest = find(scenarios(), lambda _: True, settings=EXACTLY)
    spec = simplest.checkpoint
    assert simplest == Scenario(requests=(RequestSpec((0,)),), checkpoint=spec)
    assert spec is not None
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.rope_type) == (1, 1, 1, "default")
    extras = (spec.tie_word_embeddings, spec.attention_bias, spec.mlp_bias, spec.legacy_rope_keys, spec.eos_token_ids)
    assert not any(extras)
    assert (spec.num_shards, spec.num_tied_rows, spec.with_tokenizer, spec.seed) == (1, 0, False, 0)
    assert spec.dtype == "float32"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda scenario: len(scenario.requests) >= 2, (RequestSpec((0,)),) * 2),
        (lambda scenario: scenario.requests[0].cuts, (RequestSpec((0, 0), cuts=(1,)),)),
        (lambda scenario: scenario.requests[0].ignore_eos, (RequestSpec((0,), ignore_eos=True),)),
        (lambda scenario: scenario.requests[0].max_tokens > 4, (RequestSpec((0,), max_tokens=5),)),
        (lambda scenario: 5 in scenario.requests[0].prompt_token_ids, (RequestSpec((5,)),)),
    ],
    ids=["two requests", "cut", "ignore_eos", "max_tokens", "token"],
)
def test_scenario_shrinks_to_what_a_failure_needs(condition, expected):
    smallest = find(model_scenarios(vocab_size=50), condition, settings=EXACTLY)
    assert smallest == Scenario(requests=expected, checkpoint=None)


@pytest.mark.parametrize(
    ("condition", "changes"),
    [
        (lambda spec: spec.num_heads > spec.num_kv_heads, {"num_heads": 2}),
        (lambda spec: spec.rope_type == "llama3", {"rope_type": "llama3"}),
        (lambda spec: spec.tie_word_embeddings, {"tie_word_embeddings": True}),
        (lambda spec: spec.num_layers == 3, {"num_layers": 3}),
    ],
    ids=["grouped heads", "llama3", "tied", "layers"],
)
def test_model_shrinks_to_what_a_failure_needs(condition, changes):
    simplest = find(checkpoint_specs(), lambda _: True, settings=EXACTLY)
    smallest = find(checkpoint_specs(), condition, settings=EXACTLY)
    assert smallest == CheckpointSpec(**{**simplest.__dict__, **changes})


@pytest.fixture(scope="module")
def two_hundred(scripted_case):
    """The first 200 cases of a check."""
    drawn: list[Scenario] = []

    def remember(scenario, folder, **_):
        assert folder is None
        drawn.append(scenario)
        return scripted_case(scenario)

    settings = CheckSettings(MODES, scenarios(), folder=None, num_examples=200, seed=0, properties=())
    with mock.patch("oracle.case_check.Case", remember):
        Checker(settings).run()
    assert len(drawn) == 200
    return drawn


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        (lambda spec: (spec.num_heads, spec.num_kv_heads), {(1, 1), (2, 2), (2, 1), (4, 2), (4, 1)}),
        (lambda spec: spec.head_dim, {8, 16, 20, 24}),
        (lambda spec: spec.hidden_size, {32, 48, 64, 100}),
        (lambda spec: spec.num_layers, {1, 2, 3}),
        (
            lambda spec: (spec.rope_type, spec.legacy_rope_keys),
            set(product(SUPPORTED_ROPE_TYPES, (False, True))),
        ),
        (lambda spec: spec.rope_theta, {10000.0, 500000.0}),
        (lambda spec: spec.low_freq_factor, {0.125, 1.0}),
        (lambda spec: spec.high_freq_factor, {4.0, 8.0}),
        (lambda spec: spec.original_max_position_embeddings, {32, 64}),
        (lambda spec: spec.dtype, {"float32", "float64", "bfloat16", "float16"}),
        (lambda spec: spec.norm_eps, {1e-5, 1e-6}),
        (lambda spec: spec.tie_word_embeddings, {False, True}),
        (lambda spec: spec.attention_bias, {False, True}),
        (lambda spec: spec.mlp_bias, {False, True}),
        (lambda spec: spec.num_shards, {1, 2}),
        (lambda spec: bool(spec.eos_token_ids), {False, True}),
        (lambda spec: bool(spec.num_tied_rows), {False, True}),
        (lambda spec: spec.with_tokenizer, {False, True}),
    ],
    ids=[
        "heads",
        "head_dim",
        "hidden_size",
        "num_layers",
        "rope_type and keys",
        "rope_theta",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
        "stored dtype",
        "norm_eps",
        "tie_word_embeddings",
        "attention_bias",
        "mlp_bias",
        "num_shards",
        "eos_token_ids",
        "num_tied_rows",
        "with_tokenizer",
    ],
)
def test_every_kind_of_model_comes_up(two_hundred, feature, values):
    counts = Counter(feature(scenario.checkpoint) for scenario in two_hundred)
    assert set(counts) == values
    assert min(counts.values()) >= 5, counts


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_every_dtype_comes_up(two_hundred, dtype):
    counts = Counter(scenario.dtype for scenario in two_hundred)
    assert counts[dtype] >= 15, counts
    assert counts["float32"] >= 60, counts


@pytest.mark.parametrize(
    "happens",
    [
        lambda scenario: len(scenario.requests) == 1,
        lambda scenario: len(scenario.requests) >= 4,
        lambda scenario: 1 < scenario.max_num_seqs < len(scenario.requests),
        lambda scenario: scenario.max_num_seqs >= len(scenario.requests) > 2,
        lambda scenario: len({len(request.prompt_token_ids) for request in scenario.requests}) > 2,
        lambda scenario: len({request.max_tokens for request in scenario.requests}) > 2,
        lambda scenario: any(len(request.prompt_token_ids) > 16 for request in scenario.requests),
        lambda scenario: any(len(request.prompt_token_ids) > 256 for request in scenario.requests),
        lambda scenario: any(len(request.prompt_token_ids) == 1 for request in scenario.requests),
        lambda scenario: any(len(request.cuts) > 1 for request in scenario.requests),
        lambda scenario: any(0 in request.prompt_token_ids for request in scenario.requests),
        lambda scenario: any(
            token_id in scenario.checkpoint.eos_token_ids and not request.ignore_eos
            for request in scenario.requests
            for token_id in request.prompt_token_ids
        ),
        lambda scenario: any(request.ignore_eos for request in scenario.requests) and scenario.checkpoint.eos_token_ids,
        lambda scenario: any(special in text for text in scenario.texts for special in SPECIAL_TOKENS),
    ],
    ids=[
        "one request",
        "many requests",
        "more requests than fit",
        "all requests fit",
        "prompts of several lengths",
        "several limits",
        "prompts longer than a cache's first allocation",
        "positions that bfloat16 cannot count",
        "prompt of one token",
        "several chunks",
        "token 0 inside a prompt",
        "end-of-sequence token inside a prompt",
        "end-of-sequence ignored",
        "special token in a text",
    ],
)
def test_every_kind_of_run_comes_up(two_hundred, happens):
    assert sum(bool(happens(scenario)) for scenario in two_hundred) >= 5


@given(text=texts())
def test_texts_hold_no_half_characters(text):
    assert text.encode().decode() == text

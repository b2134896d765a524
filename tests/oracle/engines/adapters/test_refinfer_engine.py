from typing import Any

import pytest

from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.adapters.refinfer_engine import RefinferAdapter
from oracle.engines.adapters.refinfer_settings import MAX_MODEL_LEN, OPTIONS_BY_MODE, WITNESSES
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.registry import RECIPES
from oracle.engines.serve import load_adapter
from refinfer.errors import ConfigError, InvariantError

pytestmark = pytest.mark.without_shape_checks

SCORES = {"logprobs": 2, "logits": True, "prompt_logprobs": 1}
SMALLEST: dict[str, dict[str, Any]] = {
    "none": {"max_num_seqs": 3},
    "static": {"max_num_seqs": 3},
    "continuous": {"max_num_seqs": 3, "max_num_batched_tokens": 5, "scheduling": "prefill_first"},
    "paged": {
        "max_num_seqs": 8, "max_num_batched_tokens": 24, "block_size": 4, "num_blocks": 16, "preemption": "swap",
        "speculative": "self", "num_speculative_tokens": 3,
    },
    "paged-gather": {"block_size": 1, "num_blocks": 64, "placement_seed": 1, "speculative": "ngram"},
}  # fmt: skip


@pytest.fixture
def opened(folder):
    """Opens a mode with some knobs."""

    def open_engine(mode="paged", **knobs):
        engine = RefinferAdapter(mode)
        engine.open(str(folder), knobs)
        return engine

    return open_engine


@pytest.fixture
def mixed(request_of):
    """Requests of every kind, some of which come late or are aborted."""
    return [
        request_of("greedy", range(30), max_tokens=6, ignore_eos=True, **SCORES),
        request_of(
            "biased", range(30, 60), logit_bias=[[9, 8.0]], repetition_penalty=3.0, arrival=1, ignore_eos=True, **SCORES
        ),
        request_of("drawn", range(25), n=2, top_k=5, max_tokens=5, temperature=1.5, seed=3, **SCORES),
        request_of("stopped", range(12), min_tokens=2, stop_token_ids=list(range(0, 70, 2)), max_tokens=8, arrival=2),
        request_of("aborted", range(40, 65), max_tokens=6, abort_after=2, ignore_eos=True),
        request_of("early", (8, 9), abort_after=0, arrival=3),
    ]


@pytest.mark.parametrize("mode", OPTIONS_BY_MODE)
def test_mode_keeps_its_contract(wrong_checks, mixed, mode):
    assert wrong_checks(RefinferAdapter(mode), *mixed, knobs=SMALLEST[mode]) == set()


def test_all_modes_and_settings_give_the_same_bits(opened, mixed):
    requests = [request for request in mixed if request.abort_after is None]
    expected = opened("none").run(requests).outputs
    for mode, knobs in SMALLEST.items():
        assert opened(mode, **knobs).run(requests).outputs == expected


def test_witnesses_count_what_happens_in_one_run(opened, request_of):
    requests = [
        request_of("r0", range(20), max_tokens=12, n=2, ignore_eos=True),
        request_of("r1", range(30, 60), max_tokens=12, ignore_eos=True),
        request_of("r2", range(40, 70), max_tokens=12, ignore_eos=True),
    ]
    engine = opened("paged", **SMALLEST["paged"])
    first, second = engine.run(requests).witnesses, engine.run(requests).witnesses
    assert set(first) == set(WITNESSES)
    for name in ("preemptions", "swaps", "chunks", "accepted_tokens", "forks"):
        assert first[name] > 0, name
    assert first["held_blocks"] == second["held_blocks"] == 0
    assert second["steps"] < 2 * first["steps"]


def test_tokens_of_an_earlier_run_are_counted_as_cached(opened, request_of):
    engine = opened("paged")
    requests = [request_of("r0", range(40), max_tokens=2)]
    assert [engine.run(requests).witnesses["cached_tokens"] > 0 for _ in range(2)] == [False, True]


def test_abort_ends_all_answers_of_a_request(opened, request_of):
    requests = [
        request_of("r0", n=2, max_tokens=6, ignore_eos=True, abort_after=2, logits=True),
        request_of("r1", abort_after=0, logits=True),
        request_of("r2", max_tokens=1, abort_after=1, ignore_eos=True),
    ]
    outputs = opened().run(requests).outputs
    assert [[own.finish_reason for own in output.samples] for output in outputs] == [
        ["abort", "abort"], ["abort"], ["length"],
    ]  # fmt: skip
    assert [len(own.token_ids) for own in outputs[0].samples] == [len(own.logits) for own in outputs[0].samples]
    assert outputs[1].samples[0].logits == ()


def test_request_that_cannot_run_is_refused_in_the_words_of_the_engine(opened, request_of):
    requests = [
        request_of("r0"),
        request_of("r1", ()),
        request_of("r0"),
        request_of("r2", top_p=2.0),
        request_of("r3", no_repeat_ngram_size=2),
        request_of("r4", range(10), max_tokens=4, cache_salt="one"),
    ]
    outputs = opened().run(requests).outputs
    refused = [output.refused for output in outputs]
    assert refused[0] is refused[5] is None
    for words, message in zip(("no token", "in use", "top_p", "no_repeat_ngram_size"), refused[1:5], strict=True):
        assert words in message
    assert "cache_salt" in opened("none").run(requests[5:]).outputs[0].refused


def test_request_that_finds_no_token_left_is_refused_and_others_go_on(opened, request_of):
    all_but_5 = [token_id for token_id in range(71) if token_id != 5]
    without = {"min_tokens": 1, "stop_token_ids": all_but_5, "logit_bias": [[5, -1e308]], "repetition_penalty": 1e10}
    requests = [request_of("r0", **without), request_of("r1")]
    engine = opened()
    outputs = engine.run(requests).outputs
    assert "none of the 71 tokens is left" in outputs[0].refused
    assert outputs[1] == engine.run(requests[1:]).outputs[0]


def test_error_of_the_engine_is_no_refusal_and_leaves_no_request_behind(opened, request_of, monkeypatch):
    engine = opened()
    expected = engine.run([request_of()]).outputs

    def failing(_):
        message = "broken"
        raise InvariantError(message, request_id="r0")

    with monkeypatch.context() as patch:
        patch.setattr(engine._engine.core.runner, "execute", failing)
        with pytest.raises(InvariantError, match="broken"):
            engine.run([request_of("r0"), request_of("r1", arrival=9)])
    assert not engine._engine.has_unfinished_requests()
    assert engine.run([request_of()]).outputs == expected


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"num_blocks": 2}, "2 blocks of 16"),
        ({"pages": 1}, "pages=1 is unknown"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
    ],
)
def test_open_refuses_settings_in_the_words_of_the_engine(opened, knobs, words):
    with pytest.raises(Refused, match=words):
        opened(**knobs)


def test_run_refuses_to_run_what_is_closed(opened):
    engine = opened()
    engine.close()
    with pytest.raises(ConfigError, match="no checkpoint is open"):
        engine.run([])


@pytest.mark.parametrize("mode", OPTIONS_BY_MODE)
def test_recipe_of_a_mode_gives_its_adapter(mode):
    (recipe,) = [recipe for recipe in RECIPES if recipe.name == f"refinfer-{mode}"]
    engine = load_adapter(recipe.target)
    assert recipe.runs_here
    assert isinstance(engine, EngineAdapter)
    declaration = engine.declare()
    assert declaration.name == recipe.name
    assert declaration.max_model_len == MAX_MODEL_LEN
    assert EngineDeclaration.from_data(declaration.to_data()) == declaration

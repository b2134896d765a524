"""The continuous cache, beside a plain model: a list of the request's tokens."""

from functools import partial

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from refinfer.attention_layout import KEY_TILE, AttentionLayout
from refinfer.cache import ContinuousCache
from refinfer.errors import CapacityError, InvariantError, ShapeError
from refinfer.interfaces import AttentionView, KVCache

MAX_TOKENS = 140  # two tiles of keys and a part of a third

chunks = st.one_of(st.integers(1, 20), st.sampled_from([KEY_TILE - 1, KEY_TILE, KEY_TILE + 1]))


class ContinuousCacheLife(RuleBasedStateMachine):
    """Chunks run, stand in part or not at all, and fail half-way; the model is the tokens that stand."""

    def __init__(self, toolbox):
        super().__init__()
        self.toolbox = toolbox
        self.tokens = []
        self.num_written = 0
        self.next_name = 1

    @initialize(has_limit=st.booleans())
    def start(self, has_limit):
        self.max_tokens = MAX_TOKENS if has_limit else None
        self.cache = ContinuousCache(self.toolbox.config, torch.float64, max_tokens=self.max_tokens)

    def names(self, num_tokens):
        """Names for new tokens: no two writes of a life have the same."""
        self.next_name += num_tokens
        return list(range(self.next_name - num_tokens, self.next_name))

    def fits(self, num_tokens):
        return self.max_tokens is None or len(self.tokens) + num_tokens <= self.max_tokens

    def run_layer(self, view, names, layer_index):
        """Runs one layer, and checks what the attention core is given against the model."""
        tools, probe = self.toolbox, self.toolbox.Probe()
        output = tools.attend(view, names, layer_index, probe)
        (call,) = probe.calls
        expected = self.tokens + names
        for given, kind in ((call.keys, "key"), (call.values, "value")):
            dense = tools.vectors(expected, layer_index, tools.num_kv_heads, kind).transpose(0, 1)[None]
            assert torch.equal(given[:, :, : len(expected)], dense), "the request's own tokens in order"
            assert not given[:, :, len(expected) :].any(), "zeros, which add nothing when their weight is zero"
            assert given.shape[2] == -(-len(expected) // KEY_TILE) * KEY_TILE, "whole tiles, and no tile more"
        queries = tools.vectors(names, layer_index, tools.num_heads, "query")
        assert torch.equal(call.queries, queries.transpose(0, 1)[None])
        assert call.layout == AttentionLayout(len(names), len(expected)), "causal, aligned at the end, no padding"
        assert torch.equal(output, -queries), "the output is packed in the order of the tokens"

    @rule(num_tokens=chunks, share=st.fractions(0, 1))
    def step(self, num_tokens, share):
        """Runs a chunk, of which the first part stands: the rest is rolled back."""
        if not self.fits(num_tokens):
            return
        names = self.names(num_tokens)
        view = self.cache.attention_view(num_tokens)
        for layer_index in range(self.toolbox.config.num_layers):
            self.run_layer(view, names, layer_index)
        num_kept = int(share * num_tokens)
        self.cache.advance(num_kept)
        self.num_written = len(self.tokens) + num_tokens
        self.tokens += names[:num_kept]

    @rule(num_tokens=chunks)
    def fail_half_way(self, num_tokens):
        """A pass that raises after the first layer; its tokens are gone, the others stay."""
        if self.fits(num_tokens):
            self.run_layer(self.cache.attention_view(num_tokens), self.names(num_tokens), 0)
            self.num_written = len(self.tokens) + num_tokens

    @rule(num_tokens=chunks)
    def fail_before_the_first_layer(self, num_tokens):
        if self.fits(num_tokens):
            self.cache.attention_view(num_tokens)
            self.num_written = len(self.tokens)

    @precondition(lambda self: self.max_tokens is not None)
    @rule(excess=st.integers(1, 3))
    def ask_for_too_much(self, excess):
        with pytest.raises(CapacityError, match=f"limit of {MAX_TOKENS}"):
            self.cache.attention_view(MAX_TOKENS - len(self.tokens) + excess)

    @rule(excess=st.integers(1, 3))
    def advance_past_what_is_written(self, excess):
        with pytest.raises(InvariantError, match="cannot advance"):
            self.cache.advance(self.num_written - len(self.tokens) + excess)

    @rule(count=st.integers(-3, -1))
    def advance_backwards(self, count):
        with pytest.raises(InvariantError, match="cannot advance"):
            self.cache.advance(count)

    @invariant()
    def length_is_what_stands(self):
        if hasattr(self, "cache"):
            assert self.cache.num_computed_tokens == len(self.tokens)
            assert self.cache.capacity >= len(self.tokens)


def test_continuous_cache_lives_as_its_model(toolbox):
    life = settings(deadline=None, max_examples=settings().max_examples // 2, stateful_step_count=20)
    run_state_machine_as_test(partial(ContinuousCacheLife, toolbox), settings=life)  # type: ignore[arg-type]  # a factory will do


@pytest.fixture
def run_tokens(toolbox):
    """Runs named tokens through every layer of a cache, and makes them part of the request."""

    def run(cache, names):
        view, probe = cache.attention_view(len(names)), toolbox.Probe()
        for layer_index in range(toolbox.config.num_layers):
            toolbox.attend(view, names, layer_index, probe)
        cache.advance(len(names))
        return probe.calls

    return run


def test_continuous_cache_and_its_view_are_what_the_model_asks_for(toolbox):
    cache = ContinuousCache(toolbox.config, torch.float64)
    assert isinstance(cache, KVCache)
    assert isinstance(cache.attention_view(1), AttentionView)


def test_growth_costs_little_per_token(toolbox, run_tokens):
    cache = ContinuousCache(toolbox.config, torch.float64)
    capacities = set()
    for name in range(300):
        run_tokens(cache, [name])
        capacities.add(cache.capacity)
    assert len(capacities) <= 6, "the capacity doubles"
    assert cache.capacity < 2 * 300


def test_cache_that_is_just_large_enough_does_not_grow(toolbox, run_tokens):
    cache = ContinuousCache(toolbox.config, torch.float64)
    run_tokens(cache, list(range(KEY_TILE - 1)))
    run_tokens(cache, [KEY_TILE])
    assert cache.capacity == KEY_TILE


def test_growth_in_the_middle_of_a_chunk_keeps_everything(toolbox, run_tokens):
    cache = ContinuousCache(toolbox.config, torch.float64)
    run_tokens(cache, list(range(1, KEY_TILE)))
    assert cache.capacity == KEY_TILE
    calls = run_tokens(cache, [KEY_TILE, KEY_TILE + 1, KEY_TILE + 2])
    assert cache.capacity > KEY_TILE
    names = list(range(1, KEY_TILE + 3))
    expected = toolbox.vectors(names, 1, toolbox.num_kv_heads, "value").transpose(0, 1)[None]
    assert torch.equal(calls[1].values, torch.nn.functional.pad(expected, (0, 0, 0, 2 * KEY_TILE - len(names))))


def test_room_in_the_last_tile_never_holds_what_was_rolled_back(toolbox, run_tokens):
    """Also where that was NaN: weights of zero do not make NaN vanish."""
    cache, probe = ContinuousCache(toolbox.config, torch.float64), toolbox.Probe()
    run_tokens(cache, [1, 2, 3])
    nan = torch.full((50, 2, 3), float("nan"), dtype=torch.float64)
    cache.attention_view(50).attend(0, nan.repeat_interleave(2, 1), nan, nan, probe)
    toolbox.attend(cache.attention_view(1), [4], 0, probe)
    expected = toolbox.vectors([1, 2, 3, 4], 0, toolbox.num_kv_heads, "key").transpose(0, 1)[None]
    assert torch.equal(probe.calls[-1].keys, torch.nn.functional.pad(expected, (0, 0, 0, KEY_TILE - 4)))


def test_places_past_the_last_tile_hold_nan(toolbox):
    """No storage is handed out that nobody wrote and nobody cleaned."""
    cache, probe = ContinuousCache(toolbox.config, torch.float64), toolbox.Probe()
    toolbox.attend(cache.attention_view(2 * KEY_TILE), list(range(1, 2 * KEY_TILE + 1)), 0, probe)
    cache.advance(2 * KEY_TILE)

    def whole_storage(queries, keys, values, layout):
        return probe(queries, keys._base, values._base, layout)

    toolbox.attend(cache.attention_view(1), [2 * KEY_TILE + 1], 0, whole_storage)
    assert cache.capacity == 4 * KEY_TILE
    for storage in (probe.calls[-1].keys[0], probe.calls[-1].values[0]):
        assert not storage[:, : 3 * KEY_TILE].isnan().any()
        assert storage[:, 3 * KEY_TILE :].isnan().all()


def test_layer_that_was_never_written_shows_as_nan(toolbox):
    """A layer forgotten in one pass must not be read as zeros in the next."""
    cache, probe = ContinuousCache(toolbox.config, torch.float64), toolbox.Probe()
    toolbox.attend(cache.attention_view(2), [1, 2], 0, probe)
    cache.advance(2)
    toolbox.attend(cache.attention_view(1), [3], 1, probe)
    assert probe.calls[-1].keys[:, :, :2].isnan().all()
    assert probe.calls[-1].values[:, :, :2].isnan().all()
    assert not probe.calls[-1].keys[:, :, 2:].isnan().any()


def test_layer_that_was_left_out_late_shows_as_nan(toolbox, run_tokens):
    """Its places were room of the last tile before, and zeros."""
    cache, probe = ContinuousCache(toolbox.config, torch.float64), toolbox.Probe()
    run_tokens(cache, [1, 2])
    toolbox.attend(cache.attention_view(1), [3], 0, probe)
    cache.advance(1)
    toolbox.attend(cache.attention_view(1), [4], 1, probe)
    assert probe.calls[-1].keys.isnan().all(dim=3)[0, 0].nonzero().tolist() == [[2]]
    assert probe.calls[-1].values.isnan().all(dim=3)[0, 0].nonzero().tolist() == [[2]]


def test_caches_never_share_memory(toolbox, run_tokens):
    first, second = (ContinuousCache(toolbox.config, torch.float64) for _ in range(2))
    run_tokens(first, [1, 2])
    run_tokens(second, [7, 8])
    calls = run_tokens(first, [3])
    expected = toolbox.vectors([1, 2, 3], 0, toolbox.num_kv_heads, "key").transpose(0, 1)[None]
    assert torch.equal(calls[0].keys[:, :, :3], expected)


def test_view_refuses_another_number_of_tokens(toolbox):
    view = ContinuousCache(toolbox.config, torch.float64).attention_view(2)
    with pytest.raises(InvariantError, match="3 tokens run through a view made for 2"):
        toolbox.attend(view, [1, 2, 3], 0, toolbox.Probe())


def test_attention_view_refuses_to_run_no_token(toolbox, run_tokens):
    cache = ContinuousCache(toolbox.config, torch.float64)
    run_tokens(cache, [1, 2])
    with pytest.raises(ShapeError, match="0 queries cannot be the last of 2 keys"):
        cache.attention_view(0)


def test_attention_view_refuses_to_pass_the_limit_and_changes_nothing(toolbox, run_tokens):
    cache = ContinuousCache(toolbox.config, torch.float64, max_tokens=3)
    run_tokens(cache, [1, 2])
    with pytest.raises(CapacityError, match="2 more tokens after 2 would pass the cache's limit of 3; end") as caught:
        cache.attention_view(2)
    assert (caught.value.num_tokens, caught.value.max_tokens) == (4, 3)
    assert cache.num_computed_tokens == 2
    run_tokens(cache, [3])
    assert cache.num_computed_tokens == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_keys_and_values_are_kept_in_the_models_dtype(toolbox, dtype):
    cache, probe = ContinuousCache(toolbox.config, dtype), toolbox.Probe()
    queries, keys = torch.ones(2, 4, 3, dtype=dtype), torch.ones(2, 2, 3, dtype=dtype)
    output = cache.attention_view(2).attend(0, queries, keys, keys, probe)
    assert {output.dtype, probe.calls[0].keys.dtype, probe.calls[0].values.dtype} == {dtype}

"""The static cache, beside a plain model: for each row the list of its tokens, laid out with padding."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
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
from refinfer.cache import ContinuousCache, StaticCache
from refinfer.errors import CapacityError, InvariantError, ShapeError
from refinfer.interfaces import AttentionView
from refinfer.numerics import PlainNumerics

rows_of_prompts = st.lists(st.integers(1, 5), min_size=1, max_size=4)


class StaticCacheLife(RuleBasedStateMachine):
    """Prompts run, then one token of every row; steps stand or fail. The model is the tokens of each row."""

    def __init__(self, toolbox):
        super().__init__()
        self.toolbox = toolbox
        self.next_name = 1

    @initialize(lengths=rows_of_prompts, max_output_tokens=st.integers(1, 6))
    def start(self, lengths, max_output_tokens):
        self.lengths = lengths
        self.padding = [max(lengths) - length for length in lengths]
        self.max_columns = max(lengths) + max_output_tokens - 1
        self.rows: list[list[int]] = [[] for _ in lengths]
        self.cache = StaticCache(
            self.toolbox.config, torch.float64, num_prompt_tokens=lengths, max_output_tokens=max_output_tokens
        )

    def is_full(self):
        return bool(self.rows[0]) and self.padding[0] + len(self.rows[0]) == self.max_columns

    def new_names(self):
        """Names for the tokens that run, row by row: no two writes of a life have the same."""
        counts = [1] * len(self.rows) if self.rows[0] else self.lengths
        names = []
        for count in counts:
            names.append(list(range(self.next_name, self.next_name + count)))
            self.next_name += count
        return names

    def run_layer(self, view, new_names, layer_index):
        """Runs one layer, and checks what the attention core is given against the model."""
        tools, probe = self.toolbox, self.toolbox.Probe()
        packed = [name for names in new_names for name in names]
        output = tools.attend(view, packed, layer_index, probe)
        assert torch.equal(output, -tools.vectors(packed, layer_index, tools.num_heads, "query"))
        (call,) = probe.calls
        num_columns = max(self.lengths) if not self.rows[0] else self.padding[0] + len(self.rows[0]) + 1
        num_queries = max(map(len, new_names))
        assert call.layout == AttentionLayout(num_queries, num_columns, tuple(self.padding))
        assert call.keys.shape[2] == call.values.shape[2] == num_columns + KEY_TILE - 1, "room for any row's last tile"
        for row, (padding, names) in enumerate(zip(self.padding, new_names, strict=True)):
            tokens = self.rows[row] + names
            assert padding + len(tokens) == num_columns
            for given_tensor, kind in ((call.keys, "key"), (call.values, "value")):
                expected = tools.vectors(tokens, layer_index, tools.num_kv_heads, kind).transpose(0, 1)
                written = given_tensor[row, :, padding:num_columns]
                assert torch.equal(written, expected), "logical place p at column padding + p"
                assert not given_tensor[row, :, :padding].any(), "padding is multiplied by a weight of zero"
                assert not given_tensor[row, :, num_columns:].any(), "and so is room"
            queries = tools.vectors(names, layer_index, tools.num_heads, "query").transpose(0, 1)
            assert torch.equal(call.queries[row, :, -len(names) :], queries)
            self.check_mask(call.layout.mask[row, 0], padding, len(names))

    def check_mask(self, mask, padding, num_new_tokens):
        """A token looks at its own row's tokens up to itself; a padding place at itself alone."""
        num_columns = mask.shape[1]
        first_column = num_columns - mask.shape[0]
        for column, seen in zip(range(first_column, num_columns), mask.tolist(), strict=True):
            is_token = column >= num_columns - num_new_tokens
            expected = range(padding, column + 1) if is_token else [column]
            assert [place for place, is_seen in enumerate(seen) if is_seen] == list(expected)

    @precondition(lambda self: not self.is_full())
    @rule(stands=st.booleans(), num_layers_run=st.integers(1, 2))
    def step(self, stands, num_layers_run):
        """Runs a step, whole or up to a failure; it counts only when the cache advances."""
        view, new_names = self.cache.attention_view(), self.new_names()
        assert isinstance(view, AttentionView)
        for layer_index in range(2 if stands else num_layers_run):
            self.run_layer(view, new_names, layer_index)
        if stands:
            self.cache.advance()
            self.rows = [tokens + names for tokens, names in zip(self.rows, new_names, strict=True)]
            with pytest.raises(InvariantError, match="no others are written"):
                self.cache.advance()

    @precondition(lambda self: not self.is_full())
    @rule()
    def advance_without_writing(self):
        self.cache.attention_view()
        with pytest.raises(InvariantError, match="no others are written"):
            self.cache.advance()

    @precondition(lambda self: self.is_full())
    @rule()
    def ask_for_a_column_too_many(self):
        with pytest.raises(CapacityError, match=f"has {self.max_columns} columns and all are used; build it with more"):
            self.cache.attention_view()

    @invariant()
    def rows_count_their_own_tokens(self):
        if hasattr(self, "cache"):
            assert self.cache.num_computed_tokens == [len(tokens) for tokens in self.rows]
            assert self.cache.batch_size == len(self.rows)
            assert self.cache.num_columns == (self.padding[0] + len(self.rows[0]) if self.rows[0] else 0)


def test_static_cache_lives_as_its_model(toolbox):
    life = settings(deadline=None, max_examples=settings().max_examples // 2, stateful_step_count=12)
    run_state_machine_as_test(partial(StaticCacheLife, toolbox), settings=life)  # type: ignore[arg-type]  # a factory will do


@settings(deadline=None)
@given(lengths=rows_of_prompts, num_steps=st.integers(1, 4), seed=st.integers(0, 99))
def test_static_equals_continuous_attention_output(toolbox, lengths, num_steps, seed):
    """Real attention in float64: padding, and rows of other lengths, change no row's output."""
    generator = torch.Generator().manual_seed(seed)
    static = StaticCache(toolbox.config, torch.float64, num_prompt_tokens=lengths, max_output_tokens=num_steps)
    alone = [ContinuousCache(toolbox.config, torch.float64) for _ in lengths]
    attention = PlainNumerics().attention
    for counts in [lengths] + [[1] * len(lengths)] * (num_steps - 1):
        queries, keys, values = (
            torch.randn(sum(counts), heads, 3, generator=generator, dtype=torch.float64) for heads in (4, 2, 2)
        )
        together = static.attention_view().attend(0, queries, keys, values, attention)
        static.advance()
        parts = (torch.split(tensor, counts) for tensor in (queries, keys, values, together))
        for cache, count, (q, k, v, ours) in zip(alone, counts, zip(*parts, strict=True), strict=True):
            expected = cache.attention_view(count).attend(0, q, k, v, attention)
            cache.advance(count)
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("lengths", [[], [0], [3, 0]], ids=str)
def test_static_cache_refuses_a_batch_without_tokens(toolbox, lengths):
    with pytest.raises(ShapeError, match="needs rows of at least one token") as caught:
        StaticCache(toolbox.config, torch.float64, num_prompt_tokens=lengths, max_output_tokens=1)
    assert str(lengths) in str(caught.value)


def test_static_view_refuses_another_number_of_tokens(toolbox):
    cache = StaticCache(toolbox.config, torch.float64, num_prompt_tokens=[2, 1], max_output_tokens=1)
    with pytest.raises(InvariantError, match="4 tokens run through a view made for 3"):
        toolbox.attend(cache.attention_view(), [1, 2, 3, 4], 0, toolbox.Probe())


def test_layer_that_was_never_written_shows_as_nan(toolbox):
    cache = StaticCache(toolbox.config, torch.float64, num_prompt_tokens=[2, 1], max_output_tokens=2)
    probe = toolbox.Probe()
    toolbox.attend(cache.attention_view(), [1, 2, 3], 0, probe)
    cache.advance()
    toolbox.attend(cache.attention_view(), [4, 5], 1, probe)
    assert probe.calls[-1].keys[0, :, :2].isnan().all()
    assert probe.calls[-1].values[1, :, 1].isnan().all()
    assert not probe.calls[-1].values[1, :, 0].any(), "padding"
    assert not probe.calls[-1].values[:, :, 2:].isnan().any()


def test_layer_that_was_left_out_late_shows_as_nan(toolbox):
    """Its places were room before, and zeros."""
    cache = StaticCache(toolbox.config, torch.float64, num_prompt_tokens=[2, 1], max_output_tokens=3)
    probe = toolbox.Probe()
    view = cache.attention_view()
    for layer_index in range(toolbox.config.num_layers):
        toolbox.attend(view, [1, 2, 3], layer_index, probe)
    for layer_index, names in enumerate([[4, 5], [6, 7]]):
        cache.advance()
        toolbox.attend(cache.attention_view(), names, layer_index, probe)
    for row in range(2):
        assert probe.calls[-1].keys.isnan().all(dim=3)[row, 0].nonzero().tolist() == [[2]]


def test_room_holds_zeros_over_many_columns_and_nan_lies_past_it(toolbox):
    """Room is cleaned a tile at a time, so a life of few columns would not see the second time."""
    num_steps = 2 * KEY_TILE + 3
    cache = StaticCache(toolbox.config, torch.float64, num_prompt_tokens=[3, 1], max_output_tokens=num_steps)
    probe = toolbox.Probe()

    def whole_storage(queries, keys, values, layout):
        return probe(queries, keys._base, values, layout)

    for step in range(num_steps):
        names = [1, 2, 3, 4] if step == 0 else [2 * step + 3, 2 * step + 4]
        toolbox.attend(cache.attention_view(), names, 0, whole_storage)
        cache.advance()
        num_columns, storage = cache.num_columns, probe.calls[-1].keys[0]
        assert not storage[:, :, num_columns : num_columns + KEY_TILE - 1].any()
        assert storage[:, :, num_columns + 2 * KEY_TILE - 1 :].isnan().all()


def test_tokens_stay_when_room_is_cleaned_again(toolbox):
    """Room is cleaned a tile at a time, right behind columns that hold tokens."""
    num_steps = 2 * KEY_TILE + 3
    cache = StaticCache(toolbox.config, torch.float64, num_prompt_tokens=[1], max_output_tokens=num_steps)
    probe = toolbox.Probe()
    for name in range(num_steps):
        toolbox.attend(cache.attention_view(), [name], 0, probe)
        cache.advance()
    for storage, kind in ((probe.calls[-1].keys, "key"), (probe.calls[-1].values, "value")):
        expected = toolbox.vectors(list(range(num_steps)), 0, toolbox.num_kv_heads, kind).transpose(0, 1)
        assert torch.equal(storage[0, :, :num_steps], expected)

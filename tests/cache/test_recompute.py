"""Attention without a cache: causal within each request, and never across."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.attention_layout import AttentionLayout
from refinfer.cache import CausalAttentionView
from refinfer.errors import ShapeError
from refinfer.interfaces import AttentionView
from refinfer.numerics import PlainNumerics

attention = PlainNumerics().attention


def drawn(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_causal_view_is_a_view():
    assert isinstance(CausalAttentionView([1]), AttentionView)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), layer_index=st.integers(0, 3))
def test_causal_view_gives_each_request_its_own_tokens(toolbox, lengths, layer_index):
    probe, names = toolbox.Probe(), list(range(1, 1 + sum(lengths)))
    output = toolbox.attend(CausalAttentionView(lengths), names, layer_index, probe)
    assert torch.equal(output, -toolbox.vectors(names, layer_index, toolbox.num_heads, "query"))
    assert len(probe.calls) == len(lengths)
    for length, call in zip(lengths, probe.calls, strict=True):
        own, names = names[:length], names[length:]
        assert call.layout == AttentionLayout(length, length)
        for given_tensor, heads, kind in (
            (call.queries, toolbox.num_heads, "query"),
            (call.keys, toolbox.num_kv_heads, "key"),
            (call.values, toolbox.num_kv_heads, "value"),
        ):
            expected = toolbox.vectors(own, layer_index, heads, kind).transpose(0, 1)[None]
            assert torch.equal(given_tensor, expected)


def test_later_tokens_do_not_change_earlier_output():
    queries, keys, values = drawn(6, 4, 8, seed=0), drawn(6, 2, 8, seed=1), drawn(6, 2, 8, seed=2)
    whole = CausalAttentionView([6]).attend(0, queries, keys, values, attention)
    for length in range(1, 6):
        part = CausalAttentionView([length]).attend(0, queries[:length], keys[:length], values[:length], attention)
        torch.testing.assert_close(part, whole[:length], rtol=0, atol=1e-13)


def test_other_requests_do_not_change_output():
    queries, keys, values = drawn(7, 4, 8, seed=0), drawn(7, 2, 8, seed=1), drawn(7, 2, 8, seed=2)
    together = CausalAttentionView([3, 4]).attend(0, queries, keys, values, attention)
    alone = [
        CausalAttentionView([len(part)]).attend(0, queries[part], keys[part], values[part], attention)
        for part in (range(3), range(3, 7))
    ]
    assert torch.equal(together, torch.cat(alone))


def test_causal_view_refuses_a_request_without_tokens():
    with pytest.raises(ShapeError, match="0 queries cannot be the last of 0 keys"):
        CausalAttentionView([2, 0])


@pytest.mark.parametrize("lengths", [[2], [4], [1, 1], [3, 1], []], ids=str)
def test_causal_view_refuses_another_number_of_tokens(toolbox, lengths):
    with pytest.raises(ShapeError, match="3 tokens run through a view made for requests of"):
        toolbox.attend(CausalAttentionView(lengths), [1, 2, 3], 0, toolbox.Probe())

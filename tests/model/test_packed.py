"""Packed tokens, cut up and handed to each request's own view."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.interfaces import AttentionView
from refinfer.model.packed import PackedAttentionView
from refinfer.numerics import PlainNumerics

attention = PlainNumerics().attention


class RecordingView:
    """Keeps what it is handed; its output says which view it is."""

    def __init__(self, name):
        self.name = name
        self.calls = []

    def attend(self, layer_index, queries, keys, values, attention):
        vectors = [tensor[:, 0, 0].tolist() for tensor in (queries, keys, values)]
        self.calls.append((layer_index, *vectors, attention))
        return queries + 100 * self.name


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5), layer_index=st.integers(0, 3))
def test_packed_view_hands_each_view_its_own_tokens(lengths, layer_index):
    views = [RecordingView(name) for name in range(len(lengths))]
    packed = torch.arange(float(sum(lengths))).reshape(-1, 1, 1)
    view = PackedAttentionView(views, lengths)
    output = view.attend(layer_index, packed, packed + 0.25, packed + 0.5, attention)
    start = 0
    for own, length in zip(views, lengths, strict=True):
        tokens = [float(token) for token in range(start, start + length)]
        parts = (tokens, [token + 0.25 for token in tokens], [token + 0.5 for token in tokens])
        assert own.calls == [(layer_index, *parts, attention)]
        assert output[start : start + length, 0, 0].tolist() == [token + 100 * own.name for token in tokens]
        start += length
    assert len(output) == start


def test_packed_view_is_a_view():
    assert isinstance(PackedAttentionView([], []), AttentionView)


@pytest.mark.parametrize("lengths", [[1, 1], [2, 2], [3]], ids=str)
def test_packed_view_refuses_lengths_that_do_not_fit(lengths):
    tokens = torch.zeros(3, 1, 1)
    with pytest.raises((ValueError, RuntimeError)):
        PackedAttentionView([RecordingView(0), RecordingView(1)], lengths).attend(0, tokens, tokens, tokens, attention)

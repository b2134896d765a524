import torch

from oracle.case import Case
from oracle.explain.attention_watch import reads_of_rows, watching_attention
from refinfer.attention_layout import AttentionLayout
from refinfer.cache import CausalAttentionView


def test_every_layer_shows_what_attention_is_handed(schedule):
    model = Case(schedule).loaded(batch_invariant=True).model
    token_ids = torch.tensor([1, 2, 3])
    with watching_attention(model) as calls:
        watched = model.forward(token_ids, torch.arange(3), CausalAttentionView([2, 1]))
    assert {layer: len(own) for layer, own in calls.items()} == {0: 2, 1: 2}
    assert [reads.num_visible for reads in reads_of_rows(calls[0])] == [2, 1]
    again = model.forward(token_ids, torch.arange(3), CausalAttentionView([2, 1]))
    assert torch.equal(watched, again)
    assert len(calls[0]) == 2


def test_rows_of_a_rectangle_begin_behind_their_padding():
    keys = torch.arange(8.0).reshape(2, 1, 4, 1)
    padded, whole = reads_of_rows([(keys, keys, AttentionLayout(1, 3, (2, 0)))])
    assert (padded.keys.flatten().tolist(), padded.num_visible) == ([2.0], 1)
    assert (whole.keys.flatten().tolist(), whole.num_visible) == ([4.0, 5.0, 6.0], 3)


def test_room_that_is_no_number_is_seen():
    keys = torch.tensor([0.0, float("nan")]).reshape(1, 1, 2, 1)
    (reads,) = reads_of_rows([(keys, keys, AttentionLayout(1, 1))])
    assert not reads.is_room_finite

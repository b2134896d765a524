import torch

from oracle.case import Case
from oracle.explain.attention_watch import reads_of_rows, watching_attention
from refinfer.attention_layout import AttentionLayout
from refinfer.cache import CausalAttentionView, PagedCache, PagedPart


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


def test_requests_that_share_a_call_are_told_in_the_order_of_their_tokens(schedule):
    """The second is wider than the others, so that it does not stand between them."""
    model = Case(schedule).loaded(batch_invariant=True).model
    cache = PagedCache(model.config, model.dtype, num_blocks=4, block_size=70)
    lengths = (2, 66, 3)
    parts = [PagedPart((block_id,), 0, length) for block_id, length in enumerate(lengths)]
    prompts = torch.arange(sum(lengths)) % model.config.vocab_size
    positions = torch.cat([torch.arange(length) for length in lengths])
    model.forward(prompts, positions, cache.view(parts, "blocks"))
    parts = [PagedPart(part.block_ids, part.num_scheduled_tokens, 1) for part in parts]
    with watching_attention(model) as calls:
        model.forward(torch.tensor([1, 2, 3]), torch.tensor(lengths), cache.view(parts, "blocks"))
    reads = reads_of_rows(calls[0])
    assert [own.num_visible for own in reads] == [length + 1 for length in lengths]
    for own, (block_id,) in zip(reads, [part.block_ids for part in parts], strict=True):
        stored = cache.swap_out([block_id]).keys[0, 0, : own.num_visible]
        assert torch.equal(own.keys, stored)
        assert own.is_room_finite

"""Whatever the caches refuse comes with the values that the message shows."""

import pytest
import torch

from refinfer.attention_layout import AttentionLayout
from refinfer.cache.block_pool import BlockPool
from refinfer.cache.block_table import BlockTable
from refinfer.cache.continuous import ContinuousAttentionView, ContinuousCache
from refinfer.cache.paged import PagedCache
from refinfer.cache.paged_view import PagedPart
from refinfer.cache.prefix import PrefixMap
from refinfer.cache.recompute import CausalAttentionView
from refinfer.cache.static import StaticCache
from refinfer.errors import (
    BlockAccountingError,
    CapacityError,
    ConfigError,
    InvariantError,
    OutOfBlocksError,
    ShapeError,
)

PART = PagedPart((0,), 0, 3)


def held(num_blocks=4, num_held=2):
    pool = BlockPool(num_blocks)
    pool.allocate(num_held)
    return pool


def table():
    table = BlockTable(2)
    table.append([5, 3])
    return table


def paged(tools, num_blocks=3, block_size=2):
    return PagedCache(tools.config, torch.float64, num_blocks=num_blocks, block_size=block_size)


def continuous(tools, num_tokens=0):
    cache = ContinuousCache(tools.config, torch.float64, max_tokens=4)
    if num_tokens:
        run(tools, cache.attention_view(num_tokens), num_tokens)
    return cache


def static(tools, lengths=(2, 3), max_output_tokens=1):
    return StaticCache(tools.config, torch.float64, num_prompt_tokens=lengths, max_output_tokens=max_output_tokens)


def full_static(tools):
    cache = static(tools)
    run(tools, cache.attention_view(), 5)
    cache.advance()
    return cache


def run(tools, view, num_tokens):
    tools.attend(view, list(range(num_tokens)), 0, tools.Probe())


def broken_pool():
    pool = held()
    pool._num_pins = 7
    pool.check_integrity()


def broken_tree():
    prefix = PrefixMap(held(), 2)
    prefix.publish([1, 2], [0], 2, None)
    prefix._tree.nodes[0].is_published = False
    prefix.check_integrity()


def map_without_its_pin():
    pool = held()
    prefix = PrefixMap(pool, 2)
    prefix.publish([1, 2], [0], 2, None)
    pool.unpin(0)
    prefix.check_integrity()


def pinned_twice():
    pool = held()
    pool.pin(1)
    pool.pin(1)


REFUSALS = {
    "pool of nothing": (lambda _: BlockPool(0), ConfigError, {"num_blocks": 0}),
    "too many blocks": (lambda _: held().allocate(3), OutOfBlocksError, {"num_blocks": 3, "num_free_blocks": 2}),
    "fewer blocks than none": (lambda _: held().allocate(-1), BlockAccountingError, {"num_blocks": -1}),
    "pins that do not add up": (
        lambda _: broken_pool(),
        BlockAccountingError,
        {"finding": "0 blocks are pinned and 7 are counted"},
    ),
    "block that is not there": (
        lambda _: held().release([0, 4]),
        BlockAccountingError,
        {"block_id": 4, "num_blocks": 4},
    ),
    "block that nobody holds": (lambda _: held().hold([1, 2]), BlockAccountingError, {"block_id": 2, "ref_count": 0}),
    "second pin": (lambda _: pinned_twice(), BlockAccountingError, {"block_id": 1, "ref_count": 2}),
    "cache without a place": (lambda tools: paged(tools, 2, 0), ConfigError, {"num_blocks": 2, "block_size": 0}),
    "unknown reader": (lambda tools: paged(tools).view([PART], "all"), ConfigError, {"reader": "all"}),
    "target twice": (
        lambda tools: paged(tools).copy_blocks([(0, 2), (1, 2)]),
        InvariantError,
        {"pairs": [(0, 2), (1, 2)]},
    ),
    "other number of blocks": (
        lambda tools: paged(tools).swap_in(paged(tools).swap_out([0, 1]), [2]),
        InvariantError,
        {"num_blocks": 2, "block_ids": [2]},
    ),
    "block past the cache": (
        lambda tools: paged(tools).forget([0, 3]),
        InvariantError,
        {"block_ids": [0, 3], "num_blocks": 3},
    ),
    "view of nobody": (lambda tools: paged(tools).view([], "blocks"), ShapeError, {}),
    "table too short": (lambda tools: paged(tools).view([PART], "blocks"), InvariantError, {"part": PART}),
    "shared block": (
        lambda tools: paged(tools).view([PagedPart((0,), 0, 1), PagedPart((0, 1), 2, 1)], "blocks"),
        InvariantError,
        {"block_id": 0, "num_uses": 2},
    ),
    "other tokens in the paged view": (
        lambda tools: run(tools, paged(tools).view([PagedPart((0,), 0, 2)], "blocks"), 1),
        InvariantError,
        {"num_tokens": 1},
    ),
    "more tokens than the cache takes": (
        lambda tools: continuous(tools).attention_view(5),
        CapacityError,
        {"num_tokens": 5, "max_tokens": 4},
    ),
    "advance past what is written": (
        lambda tools: continuous(tools, 2).advance(3),
        InvariantError,
        {"num_tokens": 3},
    ),
    "other tokens in the continuous view": (
        lambda tools: run(tools, ContinuousAttentionView(continuous(tools), AttentionLayout(2, 2)), 3),
        InvariantError,
        {"num_tokens": 3},
    ),
    "batch of nobody": (lambda tools: static(tools, ()), ShapeError, {"num_prompt_tokens": ()}),
    "prompt without a token": (lambda tools: static(tools, (0, 2)), ShapeError, {"num_prompt_tokens": (0, 2)}),
    "full rectangle": (lambda tools: full_static(tools).attention_view(), CapacityError, {"max_columns": 3}),
    "advance before a view": (lambda tools: static(tools).advance(), InvariantError, {"num_columns": 0}),
    "other tokens in the static view": (
        lambda tools: run(tools, static(tools).attention_view(), 6),
        InvariantError,
        {"num_tokens": 6},
    ),
    "other tokens without a cache": (
        lambda tools: run(tools, CausalAttentionView([2, 1]), 2),
        ShapeError,
        {"num_tokens": 2},
    ),
    "node that is said to be out": (
        lambda _: broken_tree(),
        BlockAccountingError,
        {"finding": "a node of the tree is said to be out of it"},
    ),
    "node without its pin": (lambda _: map_without_its_pin(), BlockAccountingError, {"published": [0], "pinned": []}),
    "tokens that are not there": (
        lambda _: PrefixMap(held(), 2).publish([1, 2], [0], 4, None),
        InvariantError,
        {"num_computed_tokens": 4},
    ),
    "position past the table": (lambda _: table().slot(4), InvariantError, {"position": 4, "num_slots": 4}),
    "range past the table": (
        lambda _: table().slots(1, 5),
        InvariantError,
        {"start": 1, "stop": 5, "num_slots": 4},
    ),
    "logical block past the table": (lambda _: table().replace(2, 9), InvariantError, {"index": 2, "num_blocks": 2}),
}
"""By name: what is refused, the error, and the values that it has to give."""


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_gives_the_values_that_it_shows(name, toolbox, refusal_of):
    action, kind, values = REFUSALS[name]
    found, found_values, message, _ = refusal_of(action, toolbox)
    assert (found, found_values) == (kind, values)
    assert message not in ("", "None")


def test_no_refusal_is_left_out(toolbox, refusal_of, refusals_in):
    assert {refusal_of(action, toolbox)[3] for action, _, _ in REFUSALS.values()} == refusals_in("refinfer.cache")

"""Whoever holds a block is known in every step, and all that befalls a block is told once."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from oracle.inspection.watched import watch


def words_of(seen, block_id):
    """What befell a block, with its step."""
    return [(event.step, event.words) for event in seen.blocks.events if event.block_id == block_id]


def test_reference_counts_are_holders_and_the_pin(seen):
    states = [state for moment in seen.blocks.moments for state in moment.blocks]
    assert len(states) == 7 * seen.blocks.num_blocks
    assert all(state.ref_count == len(state.holders) + (state.published is not None) for state in states)
    assert any(len(state.holders) > 2 for state in states)


def test_published_tokens_are_those_that_lie_in_the_block(seen):
    published = [state for moment in seen.blocks.moments for state in moment.blocks if state.published is not None]
    assert published
    assert all(state.published == tuple(own.prefix[-1] for own in state.slots) for state in published)


def test_history_of_a_block_tells_each_kind_of_event(seen):
    assert words_of(seen, 0)[:5] == [
        (0, "allocated to 0/0"),
        (0, "written by 0/0, positions 0..1: 1 2"),
        (0, "published under 1 2"),
        (2, "shared with another sample, 0/1"),
        (2, "found by its tokens, and shared with 1/0"),
    ]
    assert (2, "copied into block 5, since it was shared and is to be written") in words_of(seen, 3)
    assert words_of(seen, 5)[0] == (2, "filled from block 3 for 0/1")
    assert (4, "given back by 0/0: ended (length); free") in words_of(seen, 5)
    assert (3, "taken from 1/0: preempted, swap; the prefix map keeps it") in words_of(seen, 6)
    assert words_of(seen, 8) == [(5, "filled from host memory for 1/0"), (6, "given back by 1/0: ended (length); free")]


def test_host_memory_is_told_while_it_is_used(seen):
    assert [moment.host for moment in seen.blocks.moments] == [{}, {}, {}, {(1, 0): 3}, {(1, 0): 3}, {}, {}]


def test_every_holder_came_and_went(seen):
    """Told events add up: of each block and sample as many comings as goings, as all requests have ended."""
    came: Counter[tuple[int, str]] = Counter()
    went: Counter[tuple[int, str]] = Counter()
    for event in seen.blocks.events:
        if found := re.match(
            r"(?:allocated to|filled .* for|shared with another sample,|found .* with) (\d/\d)", event.words
        ):
            came[event.block_id, found[1]] += 1
        elif found := re.match(r"(?:taken from|given back by) (\d/\d)", event.words):
            went[event.block_id, found[1]] += 1
    assert came == went
    assert came.total() > 20


def test_eviction_and_abort_are_told(symbolic):
    first, second = symbolic.requests
    requests = (replace(first, abort_step=3), replace(second, arrival=5, prompt_token_ids=(9, 9, 9, 9, 9, 9, 9, 9)))
    engine = replace(symbolic.engine, num_spare_blocks=0)
    found = watch(replace(symbolic, requests=requests, engine=engine, script=()), mode="paged")
    assert found.blocks is not None
    words = [event.words for event in found.blocks.events]
    assert any(own.startswith("given back by 0/0: ended (abort)") for own in words)
    assert "evicted from the prefix map" in words


@pytest.mark.parametrize("mode", ["paged", "continuous"])
def test_only_a_mode_with_blocks_has_them(symbolic, mode):
    assert (watch(symbolic, mode=mode).blocks is not None) == (mode == "paged")

"""A dictionary knows what a prefix map should find and give up; a map that does otherwise is seen."""

import pytest

from oracle.choosers import RandomChooser
from oracle.errors import InvariantViolation
from oracle.faults import FAULTS
from oracle.prefix_book import PrefixBook
from refinfer.cache.prefix import PrefixMap
from refinfer.scheduler import BlockSpace

pytestmark = pytest.mark.without_shape_checks


def watched(num_blocks=6, block_size=2):
    space = BlockSpace(num_blocks, block_size)
    assert space.prefix is not None
    PrefixBook(space, space.prefix)
    return space


def publish(space, *token_ids, salt=None):
    """Publishes tokens in blocks that nobody holds afterwards."""
    block_ids = space.pool.allocate(len(token_ids) // space.block_size)
    space.prefix.publish(token_ids, block_ids, len(token_ids), salt)
    space.pool.release(block_ids)
    return block_ids


def test_map_that_keeps_its_promises_is_let_pass():
    space = watched()
    first, second = publish(space, 1, 2, 3, 4), publish(space, 1, 2, 5, 6)
    assert space.prefix.match((1, 2, 3, 4), None, 4) == (first, 4)
    assert space.prefix.match((1, 2, 5, 6), None, 3) == ([first[0], second[1]], 3)
    assert space.prefix.match((1, 2, 3, 4), "salt", 4) == ([], 0)
    assert space.prefix.evict(1) == [first[1]]
    assert space.prefix.match((1, 2, 3, 4), None, 4) == ([first[0]], 2)
    assert space.prefix.evict(3) == [second[1], first[0]]


def test_blocks_that_fall_out_under_a_request_that_holds_them_are_forgotten():
    """A request holds a child and not its parent; the child goes unpublished so that the parent can be freed."""
    space = watched(4)
    parent, *_ = publish(space, 1, 2)
    block_ids = space.pool.allocate(2)
    space.prefix.publish((1, 2, 3, 4), block_ids, 4, None)
    assert space.prefix.evict(1) == [parent]
    space.pool.release(block_ids)
    assert space.prefix.match((1, 2, 3, 4), None, 4) == ([], 0)


def test_block_that_was_found_and_goes_first_is_seen():
    space = watched()
    (oldest,), (older,) = publish(space, 1, 2), publish(space, 3, 4)
    space.prefix.match((1, 2), None, 2)
    assert space.prefix.evict(1) == [older]
    with FAULTS["hits_do_not_refresh"].planted():
        space = watched()
        (oldest,), (older,) = publish(space, 1, 2), publish(space, 3, 4)
        space.prefix.match((1, 2), None, 2)
        with pytest.raises(InvariantViolation, match=rf"block {oldest} was given up, and blocks \[{older}\] were used"):
            space.prefix.evict(1)


@pytest.mark.parametrize("change", [lambda found: (found[0][:0], 0), lambda found: (found[0][::-1], found[1])])
def test_what_is_not_found_or_in_another_order_is_seen(change, monkeypatch):
    match = PrefixMap.match
    monkeypatch.setattr(PrefixMap, "match", lambda *arguments: change(match(*arguments)))
    space = watched()
    publish(space, 1, 2, 3, 4)
    with pytest.raises(InvariantViolation, match=r"find blocks .*; published are blocks"):
        space.prefix.match((1, 2, 3, 4), None, 4)


@pytest.mark.parametrize("seed", range(20))
def test_map_keeps_its_promises_whatever_comes(seed):
    """Random tokens of a small alphabet are published, found and given up; some of them are held all along."""
    choose, space = RandomChooser(seed), watched(8)
    num_evicted = 0
    for _ in range(60):
        token_ids, salt = choose.token_ids(2, 6), choose.one_of((None, "salt"))
        block_ids, num_tokens = space.prefix.match(token_ids, salt, len(token_ids))
        full = block_ids[: num_tokens // 2]
        space.pool.hold(full)
        num_missing = len(token_ids) // 2 - len(full)
        missing = num_missing - space.pool.num_free_blocks
        if missing > 0:
            num_evicted += len(space.prefix.evict(missing))
        if num_missing <= space.pool.num_free_blocks:
            full += space.pool.allocate(num_missing)
            space.prefix.publish(token_ids, full, 2 * len(full), salt)
        space.pool.release(full)
    assert num_evicted

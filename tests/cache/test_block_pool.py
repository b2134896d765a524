"""The block pool, beside a plain model: a list of who holds each block."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from refinfer.cache import BlockPool
from refinfer.errors import BlockAccountingError, CapacityError, ConfigError, InvariantError, OutOfBlocksError


class BlockPoolLife(RuleBasedStateMachine):
    """Blocks are taken, shared, pinned and given back; the model is one list of holders for each block."""

    @initialize(num_blocks=st.integers(1, 9), seed=st.none() | st.integers(0, 5))
    def start(self, num_blocks, seed):
        self.pool = BlockPool(num_blocks, shuffle_seed=seed)
        self.ref_counts = [0] * num_blocks
        self.pinned: set[int] = set()

    def held(self):
        return [block_id for block_id, count in enumerate(self.ref_counts) if count]

    def releasable(self):
        """Each block as often as somebody other than its pin holds it."""
        return [
            block_id for block_id, count in enumerate(self.ref_counts) for _ in range(count - (block_id in self.pinned))
        ]

    def state(self):
        counts = [self.pool.ref_count(block_id) for block_id in range(self.pool.num_blocks)]
        return counts, self.pool.num_free_blocks, self.pool.num_idle_blocks, self.pool.num_pinned_blocks

    @rule(data=st.data())
    def allocate(self, data):
        num_blocks = data.draw(st.integers(0, self.ref_counts.count(0)))
        taken = self.pool.allocate(num_blocks)
        assert len(set(taken)) == len(taken) == num_blocks
        assert not any(self.ref_counts[block_id] for block_id in taken), "never a block that is held"
        for block_id in taken:
            self.ref_counts[block_id] = 1

    @rule(excess=st.integers(1, 3))
    def allocate_too_many(self, excess):
        before = self.state()
        with pytest.raises(OutOfBlocksError):
            self.pool.allocate(self.ref_counts.count(0) + excess)
        assert self.state() == before

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def hold(self, data):
        block_ids = data.draw(st.lists(st.sampled_from(self.held()), max_size=5))
        self.pool.hold(block_ids)
        for block_id in block_ids:
            self.ref_counts[block_id] += 1

    @rule(data=st.data())
    def release(self, data):
        block_ids = data.draw(st.permutations(self.releasable()))
        block_ids = block_ids[: data.draw(st.integers(0, len(block_ids)))]
        freed = self.pool.release(block_ids)
        for block_id in block_ids:
            self.ref_counts[block_id] -= 1
        last_places = {block_id: place for place, block_id in enumerate(block_ids)}
        expected = [block_id for block_id in set(block_ids) if not self.ref_counts[block_id]]
        assert freed == sorted(expected, key=lambda block_id: last_places[block_id])

    @precondition(lambda self: set(self.held()) - self.pinned)
    @rule(data=st.data())
    def pin(self, data):
        block_id = data.draw(st.sampled_from(sorted(set(self.held()) - self.pinned)))
        self.pool.pin(block_id)
        self.ref_counts[block_id] += 1
        self.pinned.add(block_id)

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data):
        block_id = data.draw(st.sampled_from(sorted(self.pinned)))
        self.ref_counts[block_id] -= 1
        self.pinned.remove(block_id)
        assert self.pool.unpin(block_id) is (not self.ref_counts[block_id])

    @rule(data=st.data())
    def release_once_too_often(self, data):
        """Also where the references would have sufficed but for a block that is named twice."""
        own = self.releasable()
        block_id = data.draw(st.integers(-1, self.pool.num_blocks))
        block_ids = data.draw(st.permutations([*own, block_id]))
        before = self.state()
        with pytest.raises(BlockAccountingError, match=f"block {block_id} cannot be released"):
            self.pool.release(block_ids)
        assert self.state() == before

    @rule(data=st.data())
    def hold_what_nobody_holds(self, data):
        others = sorted({-1, self.pool.num_blocks, *range(self.pool.num_blocks)} - set(self.held()))
        block_id = data.draw(st.sampled_from(others))
        before = self.state()
        with pytest.raises(BlockAccountingError, match=f"block {block_id} cannot be held once more"):
            self.pool.hold([*self.held(), block_id])
        assert self.state() == before

    @rule(data=st.data())
    def pin_or_unpin_what_cannot_be(self, data):
        block_id = data.draw(st.integers(-1, self.pool.num_blocks))
        is_there = 0 <= block_id < self.pool.num_blocks
        if not is_there or not self.ref_counts[block_id] or block_id in self.pinned:
            with pytest.raises(BlockAccountingError):
                self.pool.pin(block_id)
        if block_id not in self.pinned:
            with pytest.raises(BlockAccountingError):
                self.pool.unpin(block_id)

    @invariant()
    def counts_are_those_of_the_model(self):
        if hasattr(self, "pool"):
            self.pool.check_integrity()
            idle = [block_id for block_id in self.pinned if self.ref_counts[block_id] == 1]
            assert self.state() == (self.ref_counts, self.ref_counts.count(0), len(idle), len(self.pinned))
            assert {
                block_id for block_id in range(self.pool.num_blocks) if self.pool.is_pinned(block_id)
            } == self.pinned


TestBlockPoolLife = BlockPoolLife.TestCase
TestBlockPoolLife.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=30)


def test_pool_hands_out_the_lowest_blocks_first_and_the_last_released_next():
    pool = BlockPool(6)
    assert pool.allocate(4) == [0, 1, 2, 3]
    pool.release([1, 2])
    assert pool.allocate(3) == [1, 2, 4], "in the order in which they were given back"


@given(num_blocks=st.integers(2, 40), seed=st.integers(0, 1000))
def test_one_seed_gives_one_order(num_blocks, seed):
    def life():
        pool = BlockPool(num_blocks, shuffle_seed=seed)
        first = pool.allocate(num_blocks)
        pool.release(first[::2])
        return first, pool.allocate(len(first[::2]))

    assert life() == life()


def test_seeds_scatter_blocks_at_first_and_when_they_come_back():
    first_orders, later_orders = set(), set()
    for seed in range(20):
        pool = BlockPool(8, shuffle_seed=seed)
        first_orders.add(tuple(pool.allocate(8)))
        pool.release(range(8))
        later_orders.add(tuple(pool.allocate(8)))
    assert len(first_orders) > 15
    assert len(later_orders) > 15


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_released_block_goes_back_to_any_place(seed):
    """Not only to the end: the next allocation must not give away who left last."""
    places = set()
    for shift in range(30):
        pool = BlockPool(4, shuffle_seed=seed + shift)
        pool.release(pool.allocate(4)[:1])
        pool = BlockPool(4, shuffle_seed=seed + shift)
        taken = pool.allocate(1)
        pool.release(taken)
        places.add(pool.allocate(4).index(taken[0]))
    assert places == {0, 1, 2, 3}


@pytest.mark.parametrize("num_blocks", [0, -1])
def test_pool_refuses_to_have_no_block(num_blocks):
    with pytest.raises(ConfigError, match=f"a pool of {num_blocks} blocks was asked for; it needs at least 1"):
        BlockPool(num_blocks)


def test_allocate_refuses_more_than_are_free():
    pool = BlockPool(3)
    pool.allocate(2)
    with pytest.raises(CapacityError, match="2 blocks were asked for and 1 of 3 are free; wait") as caught:
        pool.allocate(2)
    assert isinstance(caught.value, OutOfBlocksError)
    assert (caught.value.num_blocks, caught.value.num_free_blocks) == (2, 1)


def test_allocate_refuses_a_negative_number():
    with pytest.raises(InvariantError, match="-1 blocks were asked for"):
        BlockPool(3).allocate(-1)


def test_pool_refuses_to_tell_of_a_block_that_is_not_there():
    """Of a list, -1 would be the last."""
    with pytest.raises(BlockAccountingError, match="block -1 cannot be asked about; the pool has blocks 0 to 2"):
        BlockPool(3).ref_count(-1)


def test_release_never_takes_the_reference_of_a_pin():
    pool = BlockPool(1)
    pool.allocate(1)
    pool.pin(0)
    assert pool.release([0]) == []
    with pytest.raises(BlockAccountingError, match="it has 1 references and is pinned"):
        pool.release([0])


def test_unpin_refuses_a_block_without_a_pin():
    pool = BlockPool(2)
    pool.allocate(1)
    with pytest.raises(BlockAccountingError, match=r"^block 0 cannot be unpinned; it has 1 references$"):
        pool.unpin(0)


def damage_count(pool):
    pool._ref_counts[0] = -1


def damage_free_list(pool):
    pool._free[0] = pool._free[1]


def leak(pool):
    pool._free.pop()


def free_what_is_held(pool):
    pool._free.append(pool.allocate(1)[0])


def pin_what_is_free(pool):
    pool._is_pinned[3] = True


def miscount_pins(pool):
    pool._num_pins += 1


def miscount_idle(pool):
    pool._num_idle_pins += 1


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (damage_count, "fewer than no references"),
        (damage_free_list, "free list"),
        (leak, "free list"),
        (free_what_is_held, "free list"),
        (pin_what_is_free, "a pinned block has no reference"),
        (miscount_pins, "0 blocks are pinned and 1 are counted"),
        (miscount_idle, "0 blocks are idle and 1 are counted"),
    ],
)
def test_check_integrity_sees_each_kind_of_damage(damage, finding):
    pool = BlockPool(4)
    pool.allocate(1)
    pool.check_integrity()
    damage(pool)
    with pytest.raises(BlockAccountingError, match=finding):
        pool.check_integrity()

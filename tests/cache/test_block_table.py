"""The block table, beside a plain model: the list of its slots."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from refinfer.cache import BlockTable
from refinfer.errors import InvariantError

block_id_lists = st.lists(st.integers(0, 50), max_size=4)


class BlockTableLife(RuleBasedStateMachine):
    """Blocks are added, replaced and given up; the model is the slot of each position."""

    @initialize(block_size=st.integers(1, 7))
    def start(self, block_size):
        self.block_size = block_size
        self.table = BlockTable(block_size)
        self.slots: list[int] = []

    def slots_of_block(self, block_id):
        return [block_id * self.block_size + offset for offset in range(self.block_size)]

    @rule(block_ids=block_id_lists)
    def append(self, block_ids):
        self.table.append(block_ids)
        for block_id in block_ids:
            self.slots += self.slots_of_block(block_id)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), block_id=st.integers(0, 50))
    def replace(self, data, block_id):
        index = data.draw(st.integers(0, len(self.slots) // self.block_size - 1))
        self.table.replace(index, block_id)
        self.slots[index * self.block_size : (index + 1) * self.block_size] = self.slots_of_block(block_id)

    @rule(before=st.booleans())
    def replace_what_is_not_there(self, before):
        index = -1 if before else len(self.slots) // self.block_size
        with pytest.raises(InvariantError, match=f"logical block {index} cannot be replaced"):
            self.table.replace(index, 0)

    @rule()
    def clear(self):
        expected = [slot // self.block_size for slot in self.slots[:: self.block_size]]
        assert self.table.clear() == expected
        self.slots = []

    @rule(data=st.data())
    def cut(self, data):
        """Also beyond its end, where nothing is given."""
        num_kept = data.draw(st.integers(0, len(self.slots) // self.block_size + 1))
        given_up = self.slots[num_kept * self.block_size :: self.block_size]
        assert self.table.cut(num_kept) == [slot // self.block_size for slot in given_up]
        del self.slots[num_kept * self.block_size :]

    @rule()
    def go_on_with_a_copy(self):
        """What happens to the one never shows in the other."""
        original, self.table = self.table, self.table.copy()
        original.append([99])
        original.replace(0, 98)

    @rule(data=st.data())
    def read(self, data):
        start = data.draw(st.integers(0, len(self.slots)))
        stop = data.draw(st.integers(start, len(self.slots)))
        assert self.table.slots(start, stop) == self.slots[start:stop]

    @rule(excess=st.integers(1, 3))
    def read_outside(self, excess):
        num_slots = len(self.slots)
        for position in (-excess, num_slots + excess - 1):
            with pytest.raises(InvariantError, match=f"position {position} has no slot; the table has {num_slots}"):
                self.table.slot(position)
        for start, stop in ((0, num_slots + excess), (-excess, num_slots), (num_slots, num_slots - excess)):
            with pytest.raises(InvariantError, match=f"positions {start} to {stop} do not all have slots"):
                self.table.slots(start, stop)

    @invariant()
    def every_position_has_its_slot(self):
        if hasattr(self, "table"):
            assert self.table.num_slots == len(self.slots)
            assert [self.table.slot(position) for position in range(len(self.slots))] == self.slots
            assert self.table.block_ids == [slot // self.block_size for slot in self.slots[:: self.block_size]]


TestBlockTableLife = BlockTableLife.TestCase
TestBlockTableLife.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=30)


@given(num_tokens=st.integers(0, 300), block_size=st.integers(1, 64))
def test_blocks_for_gives_the_fewest_blocks_that_hold_the_tokens(num_tokens, block_size):
    num_blocks = BlockTable.blocks_for(num_tokens, block_size)
    assert num_blocks * block_size >= num_tokens
    assert num_blocks == 0 or (num_blocks - 1) * block_size < num_tokens


def test_slots_cross_blocks_that_are_no_neighbours():
    table = BlockTable(4)
    table.append([7, 2, 5])
    assert table.slots(2, 9) == [30, 31, 8, 9, 10, 11, 20]


def test_cut_keeps_the_first_blocks_and_gives_the_others():
    table = BlockTable(4)
    table.append([7, 2, 5])
    assert table.cut(3) == []
    assert table.cut(1) == [2, 5]
    assert (table.block_ids, table.num_slots) == ([7], 4)
    assert table.cut(0) == [7]


def test_error_of_a_missing_slot_gives_its_values():
    table = BlockTable(4)
    table.append([1])
    with pytest.raises(InvariantError, match="append blocks first") as caught:
        table.slot(4)
    assert (caught.value.position, caught.value.num_slots) == (4, 4)

"""Values follow the scheduler's operations, in the order decided."""

import pytest

from oracle.slot_store import SlotStore
from refinfer.sampling import SamplingParams
from refinfer.scheduler import CopyBlock, DropSwapped, ForgetBlocks, Request, RequestState, SwapIn, SwapOut


@pytest.fixture
def store():
    """Four blocks of two slots; the last block was never written."""
    store: SlotStore[str] = SlotStore(4, 2)
    store.values[:6] = list("abcdef")
    return store


@pytest.fixture
def state():
    return RequestState(Request("0", None, (1,), SamplingParams()))


def test_new_store_holds_nothing():
    assert SlotStore(2, 3).values == [None] * 6


def test_copied_block_equals_its_source(store):
    store.carry_out([CopyBlock(2, 0)])
    assert store.values == [*"efcdef", None, None]


def test_swapped_blocks_come_back_in_their_order_wherever_there_is_room(store, state):
    store.carry_out([SwapOut(state, (2, 0)), ForgetBlocks((0, 2))])
    assert store.values == [None, None, "c", "d", None, None, None, None]
    assert list(store.swapped_by_request) == [state]
    store.carry_out([SwapIn(state, (3, 2))])
    assert store.values == [None, None, *"cdab", *"ef"]
    assert not store.swapped_by_request


def test_what_was_dropped_is_gone(store, state):
    store.carry_out([SwapOut(state, (1,)), DropSwapped(state)])
    assert not store.swapped_by_request
    with pytest.raises(KeyError):
        store.carry_out([SwapIn(state, (1,))])


def test_operations_are_carried_out_in_the_order_decided(store):
    store.carry_out([CopyBlock(0, 3), ForgetBlocks((0,)), CopyBlock(1, 0)])
    assert store.values == list("cdcdefab")


def test_values_in_blocks_are_read_in_the_order_asked_for_and_stay(store):
    assert store.values_in([3, 0]) == [None, None, "a", "b"]
    assert store.values_in([]) == []
    assert store.values == [*"abcdef", None, None]

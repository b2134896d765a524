"""What one request holds."""

from refinfer.scheduler.held_blocks import HeldBlocks


def test_new_request_holds_nothing():
    held = HeldBlocks(4)
    assert (held.table.block_ids, held.num_swapped_blocks, held.cursor.num_blocks) == ([], 0, 0)
    held.table.append([3])
    assert held.table.num_slots == 4


def test_requests_never_share_what_they_hold():
    first, second = HeldBlocks(2), HeldBlocks(2)
    first.table.append([1])
    assert second.table.block_ids == []
    assert first.cursor is not second.cursor

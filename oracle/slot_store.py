"""The slots of a pool without a model: one value for each token place, moved as the scheduler's operations say."""

from collections.abc import Sequence
from typing import Generic, TypeVar, assert_never

from refinfer.scheduler import (
    BlockOperation,
    CopyBlock,
    DropSwapped,
    ForgetBlocks,
    RequestState,
    SwapIn,
    SwapOut,
)

Value = TypeVar("Value")


class SlotStore(Generic[Value]):
    """What lies in each slot; None where nobody has written, or nobody may read any more.

    Args:
        num_blocks: Blocks of the pool.
        block_size: Token places of a block.

    Attributes:
        values: By slot, what lies there.
        swapped_by_request: What a request has in host memory.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._num_blocks = num_blocks
        self.reset()

    def reset(self) -> None:
        """Forget what lies anywhere."""
        self.values: list[Value | None] = [None] * (self._num_blocks * self._block_size)
        self.swapped_by_request: dict[RequestState, list[Value | None]] = {}

    def carry_out(self, operations: Sequence[BlockOperation]) -> None:
        """Copies, swaps and forgets blocks, in the order decided."""
        for operation in operations:
            match operation:
                case SwapOut(state, block_ids):
                    self.swapped_by_request[state] = self.values_in(block_ids)
                case SwapIn(state, block_ids):
                    self._write(block_ids, self.swapped_by_request.pop(state))
                case DropSwapped(state):
                    del self.swapped_by_request[state]
                case CopyBlock(source, target):
                    self._write([target], self.values_in([source]))
                case ForgetBlocks(block_ids):
                    self._write(block_ids, [None] * (len(block_ids) * self._block_size))
                case _:
                    assert_never(operation)

    def values_in(self, block_ids: Sequence[int]) -> list[Value | None]:
        """Gives what lies in some blocks, in order."""
        return [self.values[slot] for slot in self._slots_of(block_ids)]

    def _write(self, block_ids: Sequence[int], values: Sequence[Value | None]) -> None:
        for slot, value in zip(self._slots_of(block_ids), values, strict=True):
            self.values[slot] = value

    def _slots_of(self, block_ids: Sequence[int]) -> list[int]:
        size = self._block_size
        return [slot for block_id in block_ids for slot in range(block_id * size, (block_id + 1) * size)]

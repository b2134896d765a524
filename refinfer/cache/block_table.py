"""The block table: in which blocks, and there in which slots, do a request's tokens live?"""

from collections.abc import Sequence

from refinfer.errors import InvariantError


class BlockTable:
    """A request's logical blocks in order, as physical block ids.

    The token at position p lives in logical block p // block_size; its slot, counted over all blocks of the
    cache, is block id × block size + p % block_size. The table counts no references: that is the pool's part.

    Attributes:
        block_ids: The physical ids, for reading; they change by this class's own moves.

    Args:
        block_size: Token places in a block.
    """

    __slots__ = ("_block_size", "block_ids")

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.block_ids: list[int] = []

    @staticmethod
    def blocks_for(num_tokens: int, block_size: int) -> int:
        """Gives how many blocks so many tokens fill, the last one perhaps in part."""
        return -(-num_tokens // block_size)

    @property
    def num_slots(self) -> int:
        """Token places of all blocks together."""
        return len(self.block_ids) * self._block_size

    def slot(self, position: int) -> int:
        """Gives the slot of the token at a position.

        Raises:
            InvariantError: The position lies past the table, or before it.
        """
        if not 0 <= position < self.num_slots:
            message = f"position {position} has no slot; the table has {self.num_slots}, so append blocks first"
            raise InvariantError(message, position=position, num_slots=self.num_slots)
        index, offset = divmod(position, self._block_size)
        return self.block_ids[index] * self._block_size + offset

    def slots(self, start: int, stop: int) -> list[int]:
        """Gives the slots of the positions from `start` up to `stop`, which is left out.

        Raises:
            InvariantError: A position lies past the table, or before it, or the range runs backwards.
        """
        if not 0 <= start <= stop <= self.num_slots:
            message = (
                f"positions {start} to {stop} do not all have slots; the table has {self.num_slots}, "
                "so append blocks first"
            )
            raise InvariantError(message, start=start, stop=stop, num_slots=self.num_slots)
        size = self._block_size
        slots: list[int] = []
        for index in range(start // size, self.blocks_for(stop, size)):
            first = self.block_ids[index] * size - index * size  # the slot of position 0, were all like this block
            slots.extend(range(first + max(start, index * size), first + min(stop, (index + 1) * size)))
        return slots

    def append(self, block_ids: Sequence[int]) -> None:
        """Adds blocks behind the others."""
        self.block_ids.extend(block_ids)

    def replace(self, index: int, block_id: int) -> None:
        """Puts another block in the place of a logical one, as copy on write does.

        Raises:
            InvariantError: There is no such logical block.
        """
        if not 0 <= index < len(self.block_ids):
            message = f"logical block {index} cannot be replaced; the table has {len(self.block_ids)}"
            raise InvariantError(message, index=index, num_blocks=len(self.block_ids))
        self.block_ids[index] = block_id

    def clear(self) -> list[int]:
        """Empties the table; gives the blocks it had, whose references the caller now owns."""
        block_ids, self.block_ids = self.block_ids, []
        return block_ids

    def cut(self, num_blocks: int) -> list[int]:
        """Keeps the first blocks; gives the others, whose references the caller now owns."""
        block_ids = self.block_ids[num_blocks:]
        del self.block_ids[num_blocks:]
        return block_ids

    def copy(self) -> "BlockTable":
        """Gives a table of the same blocks that changes by itself; the caller adds the references."""
        other = BlockTable(self._block_size)
        other.block_ids = list(self.block_ids)
        return other

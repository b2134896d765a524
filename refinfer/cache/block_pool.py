"""The block pool: which blocks are free, and how many hold each of the others?

The pool counts; it holds no tensor. A block with references belongs to whoever holds them, one without is free.
One of the references to a block may be a *pin*: that of the prefix map, which keeps the block findable.
Blocks on which the pin is the only reference are idle, and can be had back at any time; the pool counts them.
"""

import random
from collections.abc import Sequence
from typing import NoReturn

from refinfer.errors import BlockAccountingError, ConfigError, OutOfBlocksError


class BlockPool:
    """All blocks of a paged cache, free and held.

    The free list is a stack, last in first out: both ends of a move cost the same few steps whatever the size of
    the pool, a block that was in use is still near the processor, and one that was freed too early is
    written over at once, where tests can see it.

    Args:
        num_blocks: How many there are, at least 1.
        shuffle_seed: With a seed, blocks lie on the free list in an order drawn from it, and go back to random
            places, so that nobody can rely on neighbouring blocks. Without one, the lowest are handed out first.

    Raises:
        ConfigError: There is no block.
    """

    __slots__ = ("_free", "_is_pinned", "_num_idle_pins", "_num_pins", "_random", "_ref_counts")

    def __init__(self, num_blocks: int, *, shuffle_seed: int | None = None) -> None:
        if num_blocks < 1:
            message = f"a pool of {num_blocks} blocks was asked for; it needs at least 1"
            raise ConfigError(message, num_blocks=num_blocks)
        self._ref_counts = [0] * num_blocks
        self._is_pinned = bytearray(num_blocks)
        self._num_pins = 0
        self._num_idle_pins = 0
        self._free = list(range(num_blocks - 1, -1, -1))
        self._random = None if shuffle_seed is None else random.Random(shuffle_seed)
        if self._random:
            self._random.shuffle(self._free)

    @property
    def num_blocks(self) -> int:
        """All blocks, free and held."""
        return len(self._ref_counts)

    @property
    def num_free_blocks(self) -> int:
        """Blocks without a reference."""
        return len(self._free)

    @property
    def num_pinned_blocks(self) -> int:
        """Blocks with a pin, whether or not anybody else holds them."""
        return self._num_pins

    @property
    def num_idle_blocks(self) -> int:
        """Blocks on which a pin is the only reference."""
        return self._num_idle_pins

    def ref_count(self, block_id: int) -> int:
        """Gives how many hold a block, a pin included.

        Raises:
            BlockAccountingError: There is no such block.
        """
        # A negative id would read another block's count.
        if not 0 <= block_id < len(self._ref_counts):
            self._refuse(block_id, "asked about")
        return self._ref_counts[block_id]

    def is_pinned(self, block_id: int) -> bool:
        """Tells whether a block has a pin.

        Raises:
            BlockAccountingError: There is no such block.
        """
        self.ref_count(block_id)
        return bool(self._is_pinned[block_id])

    def allocate(self, num_blocks: int) -> list[int]:
        """Takes blocks off the free list, one reference each: all that are asked for, or none.

        Raises:
            OutOfBlocksError: Fewer are free.
            BlockAccountingError: A negative number is asked for.
        """
        num_left = len(self._free) - num_blocks
        if num_left < 0:
            message = (
                f"{num_blocks} blocks were asked for and {len(self._free)} of {len(self._ref_counts)} are free; "
                "wait until others are released, or give the cache more blocks"
            )
            raise OutOfBlocksError(message, num_blocks=num_blocks, num_free_blocks=len(self._free))
        if num_blocks < 0:
            message = f"{num_blocks} blocks were asked for; ask for none or more"
            raise BlockAccountingError(message, num_blocks=num_blocks)
        taken = self._free[num_left:]
        del self._free[num_left:]
        taken.reverse()
        for block_id in taken:
            self._ref_counts[block_id] = 1
        return taken

    def hold(self, block_ids: Sequence[int]) -> None:
        """Adds one reference to each block, as often as it is named; changes nothing if it raises.

        Raises:
            BlockAccountingError: Nobody holds one of the blocks, so that its content may be anybody's.
        """
        counts = self._ref_counts
        for block_id in block_ids:
            if not 0 <= block_id < len(counts) or not counts[block_id]:
                self._refuse(block_id, "held once more")
        for block_id in block_ids:
            self._add_reference(block_id)

    def release(self, block_ids: Sequence[int]) -> list[int]:
        """Takes one reference from each block, as often as it is named; changes nothing if it raises.

        Returns:
            The blocks that fell free, in the order given.

        Raises:
            BlockAccountingError: A block has no reference left to take; a pin is the prefix map's own.
        """
        counts, is_pinned = self._ref_counts, self._is_pinned
        freed = []
        for index, block_id in enumerate(block_ids):
            if not 0 <= block_id < len(counts) or counts[block_id] <= is_pinned[block_id]:
                for released in block_ids[:index]:
                    self._add_reference(released)
                self._refuse(block_id, "released")
            counts[block_id] -= 1
            if not counts[block_id]:
                freed.append(block_id)
            elif counts[block_id] == 1 and is_pinned[block_id]:
                self._num_idle_pins += 1
        self._put_back(freed)
        return freed

    def pin(self, block_id: int) -> None:
        """Adds the prefix map's reference to a block that somebody holds.

        Raises:
            BlockAccountingError: Nobody holds the block, or it is pinned already.
        """
        if not self.ref_count(block_id) or self._is_pinned[block_id]:
            self._refuse(block_id, "pinned")
        self._ref_counts[block_id] += 1
        self._is_pinned[block_id] = True
        self._num_pins += 1

    def unpin(self, block_id: int) -> bool:
        """Takes the prefix map's reference from a block; tells whether it fell free.

        Raises:
            BlockAccountingError: The block is not pinned.
        """
        if not self.is_pinned(block_id):
            self._refuse(block_id, "unpinned")
        self._ref_counts[block_id] -= 1
        self._is_pinned[block_id] = False
        self._num_pins -= 1
        if self._ref_counts[block_id]:
            return False
        self._num_idle_pins -= 1
        self._put_back([block_id])
        return True

    def check_integrity(self) -> None:
        """Checks that counts, pins and the free list agree.

        Raises:
            BlockAccountingError: They do not; the message says where.
        """
        counts = self._ref_counts
        pinned = [block_id for block_id, is_pinned in enumerate(self._is_pinned) if is_pinned]
        num_idle = sum(counts[block_id] == 1 for block_id in pinned)
        free = [block_id for block_id, count in enumerate(counts) if not count]
        is_wrong_by_finding = {
            "a block has fewer than no references": min(counts) < 0,
            "a pinned block has no reference": not all(counts[block_id] for block_id in pinned),
            "the free list is not what has no reference, each block once": sorted(self._free) != free,
            f"{len(pinned)} blocks are pinned and {self._num_pins} are counted": len(pinned) != self._num_pins,
            f"{num_idle} blocks are idle and {self._num_idle_pins} are counted": num_idle != self._num_idle_pins,
        }
        for finding, is_wrong in is_wrong_by_finding.items():
            if is_wrong:
                message = f"the pool of {len(counts)} blocks does not add up: {finding}"
                raise BlockAccountingError(message, finding=finding)

    def _add_reference(self, block_id: int) -> None:
        if self._ref_counts[block_id] == 1 and self._is_pinned[block_id]:
            self._num_idle_pins -= 1
        self._ref_counts[block_id] += 1

    def _put_back(self, freed: list[int]) -> None:
        """Lays blocks on the free list, so that they would come off it in the order given."""
        free = self._free
        if self._random is None:
            free.extend(reversed(freed))
            return
        for block_id in freed:
            place = int(self._random.random() * (len(free) + 1))
            free.append(block_id)
            free[place], free[-1] = block_id, free[place]

    def _refuse(self, block_id: int, action: str) -> NoReturn:
        counts = self._ref_counts
        if not 0 <= block_id < len(counts):
            message = f"block {block_id} cannot be {action}; the pool has blocks 0 to {len(counts) - 1}"
            raise BlockAccountingError(message, block_id=block_id, num_blocks=len(counts))
        pinned = " and is pinned" if self._is_pinned[block_id] else ""
        message = f"block {block_id} cannot be {action}; it has {counts[block_id]} references{pinned}"
        raise BlockAccountingError(message, block_id=block_id, ref_count=counts[block_id])

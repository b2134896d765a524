"""Faults of blocks: who holds them, what is copied, and in which order."""

from collections.abc import Sequence

from oracle.faults.registry import Area, one_replacement
from refinfer.cache.block_pool import BlockPool
from refinfer.cache.block_table import BlockTable
from refinfer.scheduler import BlockOperation, BlockSpace, CopyBlock, ForgetBlocks

_release = BlockPool.release
_put_back = BlockPool._put_back  # noqa: SLF001
_clear = BlockTable.clear
_copy_on_write = BlockSpace._copy_on_write  # noqa: SLF001
_take_operations = BlockSpace.take_operations


@one_replacement(
    "newest_block_not_released",
    Area.BLOCKS,
    "a request that ends gives back all blocks but its newest",
    BlockTable,
    "clear",
    models=("Wenyueh/MinivLLM#84 (5.04)",),
    component=("cache/block_table.py", "scheduler/block_space.py"),
    needs=(),
    seen_by=("state", "lifecycle"),
)
def newest_block_not_released(self: BlockTable) -> list[int]:
    """Loses a block."""
    return _clear(self)[:-1]


@one_replacement(
    "sharing_takes_no_reference",
    Area.BLOCKS,
    "a block that is shared is not counted for the second request",
    BlockPool,
    "hold",
    models=("apache/tvm#16666 (5.03)",),
    component=("cache/block_pool.py",),
    needs=("shared blocks",),
    seen_by=("symbolic", "state", "poison", "lifecycle"),
)
def sharing_takes_no_reference(self: BlockPool, block_ids: Sequence[int]) -> None:
    """Counts nobody."""


@one_replacement(
    "freed_block_listed_twice",
    Area.BLOCKS,
    "a block that falls free is put on the free list twice, so that two requests get it",
    BlockPool,
    "_put_back",
    models=("vllm-project/vllm#42571 (5.08)", "PaddlePaddle/FastDeploy#3710 (5.13)"),
    component=("cache/block_pool.py",),
    needs=(),
    seen_by=("symbolic", "state", "lifecycle"),
)
def freed_block_listed_twice(self: BlockPool, freed: list[int]) -> None:
    """Puts the first one back once more."""
    _put_back(self, [*freed[:1], *freed])


@one_replacement(
    "freed_while_shared",
    Area.BLOCKS,
    "a block goes back to the free list when its first holder ends, whoever else has it",
    BlockPool,
    "release",
    models=("apache/tvm#16666 (5.03)",),
    component=("cache/block_pool.py",),
    needs=("shared blocks", "uneven ends"),
    seen_by=("symbolic", "state", "lifecycle"),
)
def freed_while_shared(self: BlockPool, block_ids: Sequence[int]) -> list[int]:
    """Frees what others still hold."""
    freed = _release(self, block_ids)
    shared = [block_id for block_id in block_ids if block_id not in freed and not self.is_pinned(block_id)]
    self._free.extend(shared)
    return freed


@one_replacement(
    "copy_on_write_left_out",
    Area.BLOCKS,
    "a request writes into a block that others share",
    BlockSpace,
    "_copy_on_write",
    models=("huggingface/transformers#32159 (4.22)",),
    component=("scheduler/block_space.py",),
    needs=("copy on write",),
    seen_by=("symbolic", "state", "bitwise", "lifecycle"),
)
def copy_on_write_left_out(self: BlockSpace, table: BlockTable, index: int, target: int) -> None:  # noqa: ARG001
    """Gives the fresh block back."""
    self.pool.release([target])


@one_replacement(
    "copy_on_write_without_content",
    Area.BLOCKS,
    "a shared block is replaced by an empty one: its keys and values are not copied",
    BlockSpace,
    "_copy_on_write",
    models=None,
    component=("scheduler/block_space.py",),
    needs=("copy on write",),
    seen_by=("symbolic", "bitwise", "greedy", "poison"),
)
def copy_on_write_without_content(self: BlockSpace, table: BlockTable, index: int, target: int) -> None:
    """Takes the copy out of the list of what the cache has to do."""
    _copy_on_write(self, table, index, target)
    self._operations.pop()


@one_replacement(
    "copied_backwards",
    Area.BLOCKS,
    "copy on write copies the fresh block over the shared one",
    BlockSpace,
    "_copy_on_write",
    models=None,
    component=("scheduler/block_space.py",),
    needs=("copy on write",),
    seen_by=("symbolic", "bitwise", "greedy", "poison"),
)
def copied_backwards(self: BlockSpace, table: BlockTable, index: int, target: int) -> None:
    """Turns the copy around."""
    _copy_on_write(self, table, index, target)
    copy = self._operations.pop()
    if isinstance(copy, CopyBlock):
        self._operations.append(CopyBlock(copy.target, copy.source))


@one_replacement(
    "original_kept_after_copy",
    Area.BLOCKS,
    "after copy on write the request goes on writing to the shared block",
    BlockSpace,
    "_copy_on_write",
    models=("vllm-project/vllm#3347 (5.02)",),
    component=("scheduler/block_space.py", "cache/block_table.py"),
    needs=("copy on write",),
    seen_by=("symbolic", "state", "bitwise", "lifecycle"),
)
def original_kept_after_copy(self: BlockSpace, table: BlockTable, index: int, target: int) -> None:
    """Leaves the table as it was, and holds the source in place of the copy."""
    source = table.block_ids[index]
    _copy_on_write(self, table, index, target)
    table.replace(index, source)
    self.pool.hold([source])
    self.pool.release([target])


@one_replacement(
    "blocks_forgotten_first",
    Area.BLOCKS,
    "blocks that fell free are overwritten before they are copied or swapped out",
    BlockSpace,
    "take_operations",
    models=None,
    component=("scheduler/block_space.py", "scheduler/queues.py"),
    needs=("swap",),
    seen_by=("symbolic", "poison"),
)
def blocks_forgotten_first(self: BlockSpace) -> tuple[BlockOperation, ...]:
    """Sorts by kind, not by time."""
    return tuple(sorted(_take_operations(self), key=lambda operation: not isinstance(operation, ForgetBlocks)))


FAULTS = (
    newest_block_not_released,
    sharing_takes_no_reference,
    freed_block_listed_twice,
    freed_while_shared,
    copy_on_write_left_out,
    copy_on_write_without_content,
    copied_backwards,
    original_kept_after_copy,
    blocks_forgotten_first,
)
"""Faults of blocks."""

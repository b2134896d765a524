"""Faults that are none, of blocks, prefixes and the paged cache: the same kept in another way."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from oracle.faults.registry import Area, Fault, Replacement, no_op
from refinfer.cache import HostBlocks, PagedCache, PagedPart, paged_view
from refinfer.cache.block_pool import BlockPool
from refinfer.cache.block_table import BlockTable
from refinfer.cache.paged_view import BlocksAttentionView
from refinfer.cache.prefix_tree import ChainedHash, PrefixNode, PrefixRoot, PrefixTree
from refinfer.scheduler import BlockOperation, BlockSpace, ForgetBlocks

_put_back = BlockPool._put_back  # noqa: SLF001
_swap_out = PagedCache.swap_out
_tiles = BlocksAttentionView._tiles  # noqa: SLF001
_take_operations = BlockSpace.take_operations
_init_tree = PrefixTree.__init__


@no_op(
    "freed_blocks_laid_down_in_order",
    Area.BLOCKS,
    "which of the free blocks a request gets next decides where its tokens lie, and nothing else",
    BlockPool,
    "_put_back",
)
def freed_blocks_laid_down_in_order(self: BlockPool, freed: list[int]) -> None:
    """Lets the last of them come off the list first."""
    _put_back(self, freed[::-1])


def _blocks_for(num_tokens: int, block_size: int) -> int:
    """Counts one block more exactly where a token begins one."""
    return sum(position % block_size == 0 for position in range(num_tokens))


new_block_where_one_begins = Fault(
    "new_block_where_one_begins",
    Area.BLOCKS,
    "a block is needed for each token that comes first in one, which is how the rounded quotient counts too",
    (Replacement(BlockTable, "blocks_for", staticmethod(_blocks_for)),),
    models=(
        "GeeeekExplorer/nano-vllm#30 (a false alarm)",
        "GeeeekExplorer/nano-vllm#66 (a false alarm)",
        "GeeeekExplorer/nano-vllm#91 (a false alarm)",
    ),
)


@no_op(
    "tables_given_away_as_copies",
    Area.BLOCKS,
    "whoever gets the blocks of a table reads them, and a copy reads the same",
    BlockTable,
    "clear",
)
def tables_given_away_as_copies(self: BlockTable) -> list[int]:
    """Keeps its own list, emptied."""
    block_ids = list(self.block_ids)
    self.block_ids = []
    return block_ids


@no_op(
    "blocks_forgotten_one_by_one",
    Area.BLOCKS,
    "several blocks that are forgotten one after the other are forgotten",
    BlockSpace,
    "take_operations",
)
def blocks_forgotten_one_by_one(self: BlockSpace) -> tuple[BlockOperation, ...]:
    """Makes an operation of each block."""
    operations: list[BlockOperation] = []
    for operation in _take_operations(self):
        if isinstance(operation, ForgetBlocks):
            operations.extend(ForgetBlocks((block_id,)) for block_id in operation.block_ids)
        else:
            operations.append(operation)
    return tuple(operations)


@no_op(
    "children_found_by_comparing",
    Area.PREFIXES,
    "a node is the one that is looked for when its parent and its tokens are, by whatever way it was come upon",
    PrefixTree,
    "child",
    "hit",
)
def children_found_by_comparing(
    self: PrefixTree,  # noqa: ARG001
    parent: PrefixRoot,
    token_ids: tuple[int, ...],
) -> PrefixNode | None:
    """Asks for no hash."""
    return next((node for node in parent.children if node.token_ids == token_ids), None)


@no_op(
    "one_hash_for_all",
    Area.PREFIXES,
    "hashes may collide, and what is found is compared, so that no choice of a hash changes it",
    PrefixTree,
    "__init__",
    "hit",
)
def one_hash_for_all(self: PrefixTree, hash_function: ChainedHash) -> None:  # noqa: ARG001
    """Lets all of them collide."""
    _init_tree(self, lambda parent_hash, token_ids: 0)  # noqa: ARG005


@no_op(
    "slots_worked_out_one_by_one",
    Area.PAGED,
    "a slot is its block's first one and the place in the block, whether worked out by token or by block",
    paged_view,
    "slots_of",
)
def slots_worked_out_one_by_one(part: PagedPart, block_size: int) -> Tensor:
    """Asks a block table for every position."""
    table = BlockTable(block_size)
    table.append(part.block_ids)
    return torch.tensor([table.slot(position) for position in range(part.num_tokens)])


@no_op(
    "values_written_before_keys",
    Area.PAGED,
    "keys and values lie in memories of their own, and neither is read before both are written",
    paged_view._PagedView,  # noqa: SLF001
    "_write",
)
def values_written_before_keys(
    self: paged_view._PagedView,
    layer_index: int,
    keys: Tensor,
    values: Tensor,
) -> None:
    """Turns the two around."""
    self._values[layer_index].index_copy_(0, self.slot_mapping, values)
    self._keys[layer_index].index_copy_(0, self.slot_mapping, keys)


@no_op(
    "tiles_copied",
    Area.PAGED,
    "attention reads keys and values, and a copy that begins at the edge of a cache line reads the same",
    BlocksAttentionView,
    "_tiles",
)
def tiles_copied(self: BlocksAttentionView, layer_index: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Gives each request memory of its own."""
    return ((keys.clone(), values.clone()) for keys, values in _tiles(self, layer_index))


@no_op(
    "swapped_out_block_by_block",
    Area.PREEMPTION,
    "blocks are copied to host memory in their order, together or one after the other",
    PagedCache,
    "swap_out",
    "swap",
)
def swapped_out_block_by_block(self: PagedCache, block_ids: Sequence[int]) -> HostBlocks:
    """Copies one at a time."""
    parts = [_swap_out(self, [block_id]) for block_id in block_ids]
    return HostBlocks(torch.cat([part.keys for part in parts], 1), torch.cat([part.values for part in parts], 1))


NO_OPS = (
    freed_blocks_laid_down_in_order,
    new_block_where_one_begins,
    tables_given_away_as_copies,
    blocks_forgotten_one_by_one,
    children_found_by_comparing,
    one_hash_for_all,
    slots_worked_out_one_by_one,
    values_written_before_keys,
    tiles_copied,
    swapped_out_block_by_block,
)
"""Faults that are none."""

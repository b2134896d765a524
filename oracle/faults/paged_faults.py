"""Faults of reading and writing blocks: slots, copies, and what lies past a request's tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oracle.faults.registry import Area, one_replacement
from refinfer.cache import HostBlocks, PagedCache, PagedPart, paged_view
from refinfer.cache.paged_view import BlocksAttentionView, GatherAttentionView

_slots_of = paged_view.slots_of
_rows_of = paged_view._rows_of  # noqa: SLF001
_write = paged_view._PagedView._write  # noqa: SLF001
_swap_out = PagedCache.swap_out
_copy_blocks = PagedCache.copy_blocks
_tiles = BlocksAttentionView._tiles  # noqa: SLF001


@one_replacement(
    "blocks_read_as_neighbours",
    Area.PAGED,
    "a request's blocks are taken for neighbours, counted from its first one",
    paged_view,
    "slots_of",
    models=("huggingface/text-generation-inference#2711 (9.11)",),
    component=("cache/paged_view.py", "cache/block_table.py"),
    needs=("scattered blocks",),
    seen_by=("reference logits", "bitwise", "greedy", "poison"),
)
def blocks_read_as_neighbours(part: PagedPart, block_size: int) -> Tensor:
    """Looks up the first block only, as far as the pool goes."""
    slots = _slots_of(part, block_size)
    start = int(slots[0])
    return (start + torch.arange(len(slots))) % (int(slots.max()) + 1)


@one_replacement(
    "slot_of_newest_token_off_by_one",
    Area.PAGED,
    "the newest token is written to the slot of the one before it",
    paged_view._PagedView,  # noqa: SLF001
    "_write",
    models=None,
    component=("cache/paged_view.py",),
    needs=(),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def slot_of_newest_token_off_by_one(
    self: paged_view._PagedView,
    layer_index: int,
    keys: Tensor,
    values: Tensor,
) -> None:
    """Writes where it belongs, and one slot earlier too."""
    _write(self, layer_index, keys, values)
    slot = max(0, int(self.slot_mapping[-1]) - 1)
    self._keys[layer_index, slot] = keys[-1]
    self._values[layer_index, slot] = values[-1]


@one_replacement(
    "layers_share_blocks",
    Area.PAGED,
    "every layer writes its keys and values to the blocks of the first",
    paged_view._PagedView,  # noqa: SLF001
    "_write",
    models=None,
    component=("cache/paged_view.py",),
    needs=(),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def layers_share_blocks(
    self: paged_view._PagedView,
    layer_index: int,
    keys: Tensor,
    values: Tensor,
) -> None:
    """Writes to the first layer as well."""
    _write(self, layer_index, keys, values)
    _write(self, 0, keys, values)


@one_replacement(
    "gathered_prefix_turned",
    Area.PAGED,
    "the dense prefix is gathered in the order of slots, not of positions",
    GatherAttentionView,
    "_by_part",
    models=("unslothai/llama.cpp#194 (15.10)",),
    component=("cache/paged_view.py",),
    needs=("gather reader", "scattered blocks"),
    seen_by=("bitwise",),
)
def gathered_prefix_turned(self: GatherAttentionView, packed: Tensor) -> tuple[Tensor, ...]:
    """Sorts the slots that attention reads."""
    self._slots = [torch.cat((slots[:-1].sort().values, slots[-1:])) for slots in self._slots]
    return torch.split(packed, self._num_scheduled_tokens)


@one_replacement(
    "past_end_read_from_block",
    Area.PAGED,
    "places past a request's tokens are read from its own block, where others may have written",
    paged_view,
    "_rows_of",
    models=("vllm-project/vllm#57156 (4.10)",),
    component=("cache/paged_view.py",),
    needs=(),
    seen_by=("poison",),
)
def past_end_read_from_block(slots: Tensor, zero_slot: int, num_kv_heads: int) -> Tensor:
    """Reads the slot after the newest one."""
    return _rows_of(slots, min(int(slots[-1]) + 1, zero_slot), num_kv_heads)


@one_replacement(
    "values_not_copied",
    Area.PAGED,
    "copy on write copies keys and no values",
    PagedCache,
    "copy_blocks",
    models=None,
    component=("cache/paged.py",),
    needs=("copy on write",),
    seen_by=("reference logits", "bitwise", "greedy", "poison"),
)
def values_not_copied(self: PagedCache, pairs: Sequence[tuple[int, int]]) -> None:
    """Copies one of the two."""
    values = self._values.clone()
    _copy_blocks(self, pairs)
    self._values.copy_(values)


@one_replacement(
    "values_not_swapped",
    Area.PAGED,
    "swapping out keeps the keys twice and no values",
    PagedCache,
    "swap_out",
    models=None,
    component=("cache/paged.py",),
    needs=("swap",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def values_not_swapped(self: PagedCache, block_ids: Sequence[int]) -> HostBlocks:
    """Takes keys for values."""
    host_blocks = _swap_out(self, block_ids)
    return HostBlocks(host_blocks.keys, host_blocks.keys)


@one_replacement(
    "other_requests_tiles",
    Area.PAGED,
    "of several requests that are read at once, the first two get each other's keys and values",
    BlocksAttentionView,
    "_tiles",
    models=None,
    component=("cache/paged_view.py",),
    needs=("batch",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def other_requests_tiles(self: BlocksAttentionView, layer_index: int) -> list[tuple[Tensor, Tensor]]:
    """Swaps two rows of one call."""
    tiles = list(_tiles(self, layer_index))
    for keys, values in tiles:
        if len(keys) > 1:
            keys[:2], values[:2] = keys[:2].flip(0), values[:2].flip(0)
            break
    return tiles


FAULTS = (
    blocks_read_as_neighbours,
    slot_of_newest_token_off_by_one,
    layers_share_blocks,
    gathered_prefix_turned,
    past_end_read_from_block,
    values_not_copied,
    values_not_swapped,
    other_requests_tiles,
)
"""Faults of the paged cache's memory."""

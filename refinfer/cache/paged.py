"""The paged cache: keys and values of all requests in blocks of one size, wherever there is room.

Which block belongs to whom is not known here: block tables say where a request's tokens are, the pool counts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from refinfer.cache.block_table import BlockTable
from refinfer.cache.paged_view import BlocksAttentionView, GatherAttentionView, PagedPart
from refinfer.config import ModelConfig
from refinfer.errors import ConfigError, InvariantError, ShapeError
from refinfer.interfaces import AttentionView
from refinfer.shapes import PagedBlocks, PagedSlots

_VIEW_BY_READER: dict[str, type[GatherAttentionView | BlocksAttentionView]] = {
    "gather": GatherAttentionView,
    "blocks": BlocksAttentionView,
}


@dataclass(frozen=True)
class HostBlocks:
    """Whole blocks that were taken out of the cache, to be put back later.

    Attributes:
        keys: Their keys.
        values: Their values.
    """

    keys: PagedBlocks
    values: PagedBlocks

    @property
    def num_blocks(self) -> int:
        """How many there are."""
        return self.keys.shape[1]


class PagedCache:
    """Keys and values in blocks, laid out (layers, blocks, block_size, kv_heads, head_dim).

    A block table's places past the tokens that are computed are scratch: a step writes there, and what it wrote
    becomes part of the request when its `num_computed_tokens` advances. A step that failed is run again over it.

    Args:
        config: The model's shape.
        dtype: Dtype of keys and values, which is the model's.
        num_blocks: Blocks, at least 1.
        block_size: Token places in a block, at least 1.
        poison: Whether places hold NaN while nobody has written them, or when they were freed, so that reading
            one cannot go unseen.

    Raises:
        ConfigError: There would be no place for a token.
    """

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, *, num_blocks: int, block_size: int, poison: bool = True
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            message = f"{num_blocks} blocks of {block_size} places cannot hold a token; both must be at least 1"
            raise ConfigError(message, num_blocks=num_blocks, block_size=block_size)
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._poison = poison
        # The last slot belongs to no block and holds zeros, for places of a tile that have no token.
        shape = (config.num_layers, num_blocks * block_size + 1, config.num_kv_heads, config.head_dim)
        self._keys: PagedSlots = torch.zeros(shape, dtype=dtype)
        self._values: PagedSlots = torch.zeros(shape, dtype=dtype)
        self.forget(range(num_blocks))

    @property
    def num_blocks(self) -> int:
        """All blocks."""
        return self._num_blocks

    @property
    def block_size(self) -> int:
        """Token places in a block."""
        return self._block_size

    def view(self, parts: Sequence[PagedPart], reader: str) -> AttentionView:
        """Gives the view for one step.

        Args:
            parts: What each request runs, in the order in which their tokens are packed.
            reader: "gather" or "blocks"; they differ in the way, and in the invariant manner in no bit of the outcome.

        Raises:
            ConfigError: There is no such reader.
            ShapeError: A request runs no token, or there is no request.
            InvariantError: A block table is too short or names a block that is not there, or a block would be
                written that stands in a second place of the tables.
        """
        if reader not in _VIEW_BY_READER:
            message = f"reader {reader!r} is unknown; choose one of {', '.join(_VIEW_BY_READER)}"
            raise ConfigError(message, reader=reader)
        self._check_parts(parts)
        view = _VIEW_BY_READER[reader](self._keys, self._values, self._block_size, parts)
        if self._poison:
            # A layer that skips these tokens must not be read as what was here before.
            for storage in (self._keys, self._values):
                storage.index_fill_(1, view.slot_mapping, float("nan"))
        return view

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies whole blocks, as copy on write does; every source is read before any target is written.

        Args:
            pairs: Source and target of each copy; no target may stand twice.

        Raises:
            InvariantError: A block is not there, or a target stands twice.
        """
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        if len(set(targets)) < len(targets):
            message = f"one block would be copied to twice: {targets}; name each target once"
            raise InvariantError(message, pairs=pairs)
        source_indices, target_indices = self._indices(sources), self._indices(targets)
        for blocks in self._blocks():
            blocks[:, target_indices] = blocks[:, source_indices]

    def swap_out(self, block_ids: Sequence[int]) -> HostBlocks:
        """Copies whole blocks out of the cache, which keeps them until they are forgotten.

        Raises:
            InvariantError: A block is not there.
        """
        indices = self._indices(block_ids)
        keys, values = (blocks[:, indices] for blocks in self._blocks())
        return HostBlocks(keys, values)

    def swap_in(self, host_blocks: HostBlocks, block_ids: Sequence[int]) -> None:
        """Puts blocks back bit by bit, in the order in which they were taken out, wherever there is room now.

        Raises:
            InvariantError: A block is not there, or there are more or fewer than were taken out.
        """
        if len(block_ids) != host_blocks.num_blocks:
            message = f"{host_blocks.num_blocks} blocks cannot be put back in {len(block_ids)}; give as many"
            raise InvariantError(message, num_blocks=host_blocks.num_blocks, block_ids=block_ids)
        indices = self._indices(block_ids)
        for blocks, saved in zip(self._blocks(), (host_blocks.keys, host_blocks.values), strict=True):
            blocks[:, indices] = saved

    def forget(self, block_ids: Sequence[int]) -> None:
        """Puts NaN in blocks that fell free; does nothing in a cache without poison.

        Raises:
            InvariantError: A block is not there.
        """
        indices = self._indices(block_ids)
        if self._poison:
            for blocks in self._blocks():
                blocks.index_fill_(1, indices, float("nan"))

    def _blocks(self) -> tuple[PagedBlocks, PagedBlocks]:
        """Gives the storage by blocks.

        The zeros behind the last one part the layers in memory. `index_select` would copy all of a view like that to
        take a few blocks out of it, which subscripts do not.
        """
        layers, _, kv_heads, head_dim = self._keys.shape
        shape = (layers, self._num_blocks, self._block_size, kv_heads, head_dim)
        return self._keys[:, :-1].view(shape), self._values[:, :-1].view(shape)

    def _indices(self, block_ids: Sequence[int]) -> Int[Tensor, " blocks"]:
        self._check_blocks(block_ids)
        return torch.tensor(block_ids, dtype=torch.int64)

    def _check_blocks(self, block_ids: Sequence[int]) -> None:
        if block_ids and not 0 <= min(block_ids) <= max(block_ids) < self._num_blocks:
            message = f"blocks {list(block_ids)} are not all there; the cache has 0 to {self._num_blocks - 1}"
            raise InvariantError(message, block_ids=block_ids, num_blocks=self._num_blocks)

    def _check_parts(self, parts: Sequence[PagedPart]) -> None:
        if not parts:
            message = "a view of no request was asked for; a step runs at least one token"
            raise ShapeError(message)
        used_by_part = []
        for part in parts:
            used = part.block_ids[: BlockTable.blocks_for(part.num_tokens, self._block_size)]
            if len(used) * self._block_size < part.num_tokens:
                message = (
                    f"{part.num_tokens} tokens do not fit in {len(used)} blocks of {self._block_size}; "
                    "append blocks before the step"
                )
                raise InvariantError(message, part=part)
            self._check_blocks(used)
            used_by_part.append(used)
        num_uses = Counter(block_id for used in used_by_part for block_id in used)
        for part, used in zip(parts, used_by_part, strict=True):
            for block_id in used[part.num_computed_tokens // self._block_size :]:
                if num_uses[block_id] > 1:
                    message = f"block {block_id} would be written and stands in {num_uses[block_id]} places; copy it"
                    raise InvariantError(message, block_id=block_id, num_uses=num_uses[block_id])

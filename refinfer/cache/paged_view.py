"""The two readers of the paged cache: a dense prefix gathered first, or whole tiles through the block table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from refinfer.attention_layout import AttentionLayout, whole_tiles
from refinfer.cache.block_table import BlockTable
from refinfer.cache.dense import to_dense, to_packed
from refinfer.errors import InvariantError
from refinfer.interfaces import AttentionFunction
from refinfer.shapes import DenseKeys, Keys, PagedSlots, Queries, SlotMapping, Values

_MAX_PLACES_AT_ONCE = 1024
"""Places that are read in one call, unless one request has more: so many that calls are few, and few enough that
what was read is still near the processor when attention comes to it."""


@dataclass(frozen=True)
class PagedPart:
    """What one request runs in a step.

    Attributes:
        block_ids: Its block table, with places for the tokens that run.
        num_computed_tokens: Its tokens before those that run.
        num_scheduled_tokens: Its tokens that run.
    """

    block_ids: tuple[int, ...]
    num_computed_tokens: int
    num_scheduled_tokens: int

    @property
    def num_tokens(self) -> int:
        """Its tokens up to the last one that runs."""
        return self.num_computed_tokens + self.num_scheduled_tokens


def slots_of(part: PagedPart, block_size: int) -> SlotMapping:
    """Gives the slots of a request's tokens, up to the last one that runs."""
    used = part.block_ids[: BlockTable.blocks_for(part.num_tokens, block_size)]
    block_ids = np.array(used, dtype=np.int64)  # NumPy, since the tables are short and made anew for each step
    slots = block_ids[:, None] * block_size + np.arange(block_size)  # blocks block_size
    return torch.from_numpy(slots.ravel()[: part.num_tokens])


class _PagedView:
    """What both readers share: where the tokens that run are written.

    Args:
        keys: The keys of the whole cache.
        values: The values of the whole cache.
        block_size: Token places in a block.
        parts: What each request runs, in the order in which their tokens are packed.

    Raises:
        ShapeError: A request runs no token.
    """

    def __init__(self, keys: PagedSlots, values: PagedSlots, block_size: int, parts: Sequence[PagedPart]) -> None:
        self._keys, self._values = keys, values
        self._num_scheduled_tokens = [part.num_scheduled_tokens for part in parts]
        self._slots = [slots_of(part, block_size) for part in parts]
        own = zip(self._slots, parts, strict=True)
        self.slot_mapping: SlotMapping = torch.cat([slots[part.num_computed_tokens :] for slots, part in own])

    def _check(self, queries: Queries) -> None:
        if len(queries) != len(self.slot_mapping):
            message = f"{len(queries)} tokens run through a view made for {len(self.slot_mapping)}"
            raise InvariantError(message, num_tokens=len(queries))

    def _write(self, layer_index: int, keys: Keys, values: Values) -> None:
        self._keys[layer_index].index_copy_(0, self.slot_mapping, keys)
        self._values[layer_index].index_copy_(0, self.slot_mapping, values)

    def _by_part(self, packed: Tensor) -> tuple[Tensor, ...]:
        return torch.split(packed, self._num_scheduled_tokens)


class GatherAttentionView(_PagedView):
    """Gathers a request's prefix into a rectangle, puts the new tokens behind it, attends, and writes them last."""

    def __init__(self, keys: PagedSlots, values: PagedSlots, block_size: int, parts: Sequence[PagedPart]) -> None:
        super().__init__(keys, values, block_size, parts)
        self._layouts = [AttentionLayout(part.num_scheduled_tokens, part.num_tokens) for part in parts]

    def attend(
        self, layer_index: int, queries: Queries, keys: Keys, values: Values, attention: AttentionFunction
    ) -> Queries:
        """Gives the per-head attention output of the tokens that run, and writes their keys and values.

        Raises:
            InvariantError: More or fewer tokens run than the view was made for.
        """
        self._check(queries)
        outputs = []
        parts = zip(
            self._by_part(queries), self._by_part(keys), self._by_part(values), self._slots, self._layouts, strict=True
        )
        for own_queries, own_keys, own_values, slots, layout in parts:
            prefix = slots[: -layout.num_queries]
            dense_keys = _rectangle(self._keys[layer_index, prefix], own_keys)
            dense_values = _rectangle(self._values[layer_index, prefix], own_values)
            outputs.append(to_packed(attention(to_dense(own_queries), dense_keys, dense_values, layout)))
        self._write(layer_index, keys, values)
        return torch.cat(outputs)


def _rectangle(prefix: Float[Tensor, "prefix kv_heads head_dim"], new: Keys) -> DenseKeys:
    """Lays out a prefix and the new tokens behind it, and zeros in what is left of the last tile."""
    num_tokens, num_kv_heads, head_dim = len(prefix) + len(new), *new.shape[1:]
    dense = new.new_zeros(1, num_kv_heads, whole_tiles(num_tokens), head_dim)
    dense[0, :, : len(prefix)] = prefix.transpose(0, 1)  # kv_heads tokens head_dim
    dense[0, :, len(prefix) : num_tokens] = new.transpose(0, 1)
    return dense


class _Call(NamedTuple):
    """One call of the attention core: one request, or several that run one token each over equally many tiles.

    Attributes:
        parts: Which of the requests, in the order of the rectangle's rows.
        rows: Where each place of each head is read from.
        layout: Where their queries and keys stand.
    """

    parts: tuple[int, ...]
    rows: Int[Tensor, " rows"]
    layout: AttentionLayout


class BlocksAttentionView(_PagedView):
    """Writes the new tokens first, then reads whole tiles of requests through their block tables.

    What is read lasts for one call of the attention core. Where each place is read from is worked out once, for all
    layers; places past a request's tokens are read from a slot of zeros. Requests that run one token each over as many
    tiles share a call, in which the attention core computes every row by itself.

    Attributes:
        request_order: Which of the requests each row of the calls is, one call after the other.
    """

    def __init__(self, keys: PagedSlots, values: PagedSlots, block_size: int, parts: Sequence[PagedPart]) -> None:
        super().__init__(keys, values, block_size, parts)
        num_slots, num_kv_heads = keys.shape[1:3]
        rows = [_rows_of(slots, num_slots - 1, num_kv_heads) for slots in self._slots]
        self._calls = [
            _Call(group, torch.cat([rows[index] for index in group]), _layout_of([parts[index] for index in group]))
            for group in _groups(parts)
        ]
        self.request_order = tuple(index for call in self._calls for index in call.parts)
        # packed tokens, in the order of the calls; and the way back
        by_part = self._by_part(torch.arange(len(self.slot_mapping)))
        self._order = torch.cat([by_part[index] for index in self.request_order])
        self._way_back = self._order.argsort()
        self._num_tokens_by_call = [len(call.parts) * call.layout.num_queries for call in self._calls]

    def attend(
        self, layer_index: int, queries: Queries, keys: Keys, values: Values, attention: AttentionFunction
    ) -> Queries:
        """Gives the per-head attention output of the tokens that run, and writes their keys and values.

        Raises:
            InvariantError: More or fewer tokens run than the view was made for.
        """
        self._check(queries)
        self._write(layer_index, keys, values)
        by_call = torch.split(queries[self._order], self._num_tokens_by_call)
        outputs = [
            to_packed(attention(to_dense(own_queries, len(call.parts)), dense_keys, dense_values, call.layout))
            for call, own_queries, (dense_keys, dense_values) in zip(
                self._calls, by_call, self._tiles(layer_index), strict=True
            )
        ]
        return torch.cat(outputs)[self._way_back]

    def _tiles(self, layer_index: int) -> Iterator[tuple[DenseKeys, DenseKeys]]:
        """Gives the keys and values of each call in whole tiles."""
        _, num_kv_heads, head_dim = self._keys.shape[1:]
        keys, values = self._keys[layer_index].flatten(0, 1), self._values[layer_index].flatten(0, 1)
        for call in self._calls:
            shape = (len(call.parts), num_kv_heads, -1, head_dim)
            yield keys.index_select(0, call.rows).view(shape), values.index_select(0, call.rows).view(shape)


def _rows_of(slots: SlotMapping, zero_slot: int, num_kv_heads: int) -> Int[Tensor, " rows"]:
    """Gives where each place of each head is read from, counted in heads, in the order of a dense rectangle."""
    places = np.full(whole_tiles(len(slots)), zero_slot)
    places[: len(slots)] = slots.numpy()
    return torch.from_numpy((places * num_kv_heads + np.arange(num_kv_heads)[:, None]).ravel())


def _groups(parts: Sequence[PagedPart]) -> list[tuple[int, ...]]:
    """Puts requests together that run one token each over as many tiles, few enough of them that places stay few."""
    groups: list[list[int]] = []
    open_by_width: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        width = whole_tiles(part.num_tokens)
        group = open_by_width.get(width) if part.num_scheduled_tokens == 1 else None
        if group is not None and (len(group) + 1) * width <= _MAX_PLACES_AT_ONCE:
            group.append(index)
            continue
        groups.append([index])
        if part.num_scheduled_tokens == 1:
            open_by_width[width] = groups[-1]
    return [tuple(group) for group in groups]


def _layout_of(parts: Sequence[PagedPart]) -> AttentionLayout:
    """Tells where the queries and keys of requests stand that share a call."""
    num_keys = max(part.num_tokens for part in parts)
    num_missing_tokens = tuple(num_keys - part.num_tokens for part in parts)
    return AttentionLayout(
        parts[0].num_scheduled_tokens, num_keys, (0,) * len(parts), num_missing_tokens=num_missing_tokens
    )

"""Attention whose every call has a shape that follows from a query's place in its request, and nothing else.

A query at position p attends over the first p + 1 keys, rounded up to whole tiles; what lies past its own place
is masked and adds exact zeros. So the width of the call is the same whether the query is decoded alone, comes in
a chunk, or stands in a batch. Queries whose widths are equal run in one call as entries of its batch, of which
the library computes each by itself.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from refinfer.attention_layout import AttentionLayout, whole_tiles
from refinfer.numerics.tile_kernels import KeyTiles, QueryTiles, ScoreBias, TileKernel
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues

GroupedQueries = Float[Tensor, "q_len kv_heads share head_dim"]
"""Queries of one request; the query heads that share a key/value head stand side by side."""

RowKeys = Float[Tensor, "kv_heads kv_len head_dim"]
"""Keys or values of one request, from its first token on."""

_CACHE_LINE_BYTES = 64


def attend(
    queries: DenseQueries, keys: DenseKeys, values: DenseValues, layout: AttentionLayout, kernel: TileKernel
) -> DenseQueries:
    """Computes softmax(q · k / sqrt(head_dim)) · v for each head of each request of a rectangle.

    Args:
        queries: What asks.
        keys: Keys; places that nobody looks at hold finite numbers.
        values: Values, likewise.
        layout: Which keys a query looks at.
        kernel: What attends over tiles.
    """
    paddings = _for_each_row(queries, layout.num_padding_tokens)
    missing = _for_each_row(queries, layout.num_missing_tokens)
    if layout.num_queries == 1 and not any(paddings):
        counts = tuple(layout.visible_ends[0] - num_missing for num_missing in missing)
        if whole_tiles(min(counts)) == whole_tiles(max(counts)):
            return _attend_with_one_query(queries, keys, values, counts, kernel)
    num_kv_heads, head_dim = keys.shape[1], keys.shape[3]
    outputs = []
    for row, (num_padding, num_missing) in enumerate(zip(paddings, missing, strict=True)):
        own_queries = queries[row].transpose(0, 1)  # q_len heads head_dim
        grouped = own_queries.reshape(len(own_queries), num_kv_heads, -1, head_dim)  # q_len kv_heads share head_dim
        num_visible = [max(0, end - num_missing - num_padding) for end in layout.visible_ends]
        own_keys, own_values = keys[row, :, num_padding:], values[row, :, num_padding:]
        output = attend_in_tiles(grouped, own_keys, own_values, num_visible, kernel)
        outputs.append(output.flatten(1, 2).transpose(0, 1))
    return torch.stack(outputs)


def attend_in_tiles(
    queries: GroupedQueries, keys: RowKeys, values: RowKeys, num_visible: Sequence[int], kernel: TileKernel
) -> GroupedQueries:
    """Computes softmax(q · k / sqrt(head_dim)) · v for the queries of one request.

    Args:
        queries: What asks.
        keys: Keys from the request's first token on; places that nobody looks at hold finite numbers.
        values: Values, likewise.
        num_visible: For each query how many keys it looks at, from the first on; of none for padding, which
            gives zeros.
        kernel: What attends over tiles.
    """
    parts = []
    for queries_of_width, width in _runs_of_width(num_visible):
        own = queries[queries_of_width]
        if not width:
            parts.append(torch.zeros_like(own))
            continue
        own_keys, own_values = _tiles_of(keys[None], width), _tiles_of(values[None], width)
        parts.append(_attend_over_width(own, own_keys, own_values, tuple(num_visible[queries_of_width]), kernel))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend_with_one_query(
    queries: DenseQueries, keys: DenseKeys, values: DenseValues, num_visible: tuple[int, ...], kernel: TileKernel
) -> DenseQueries:
    """Computes what `attend_in_tiles` does for one query of each of some requests, in one call for all of them.

    A decoding step of many requests would spend much of its time around calls.

    Args:
        queries: What asks.
        keys: Keys from each request's first token on.
        values: Values, likewise.
        num_visible: For each request how many keys its query looks at; all of them fill as many tiles.
        kernel: What attends over tiles.
    """
    num_rows, num_heads, _, head_dim = queries.shape
    num_kv_heads = keys.shape[1]
    share, width = num_heads // num_kv_heads, whole_tiles(num_visible[0])
    tile_rows, num_missing = kernel.tile_rows(share, queries.dtype), _missing(head_dim, queries)
    tiles = queries.reshape(num_rows, num_kv_heads, share, head_dim)
    if num_missing or share < tile_rows:
        tiles = functional.pad(tiles, (0, num_missing, 0, tile_rows - share))
    bias = _bias(num_visible, width, queries.dtype, (1, tile_rows, tile_rows))
    output = _attend_over_tiles(kernel, tiles, _tiles_of(keys, width), _tiles_of(values, width), bias, head_dim)
    return output[:, :, :share, :head_dim].reshape(num_rows, num_heads, 1, head_dim)


def _runs_of_width(num_visible: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Cuts neighbouring queries into runs over the same whole tiles of keys."""
    start = 0
    for width, run in groupby(num_visible, key=whole_tiles):
        stop = start + len(list(run))
        yield slice(start, stop), width
        start = stop


def _attend_over_width(
    queries: GroupedQueries, keys: KeyTiles, values: KeyTiles, counts: tuple[int, ...], kernel: TileKernel
) -> GroupedQueries:
    num_queries, _, share, head_dim = queries.shape
    tile_rows = kernel.tile_rows(share, queries.dtype)
    per_tile = tile_rows // share
    bias = _bias(counts, keys.shape[2], queries.dtype, (per_tile, share, tile_rows))
    tiles = _to_tiles(queries, per_tile, tile_rows)
    output = _attend_over_tiles(kernel, tiles, keys, values, bias, head_dim)
    rows = output[:, :, : per_tile * share, :head_dim]
    by_query = rows.reshape(len(tiles), -1, per_tile, share, head_dim).transpose(1, 2)
    return by_query.flatten(0, 1)[:num_queries]


def _attend_over_tiles(
    kernel: TileKernel, tiles: QueryTiles, keys: KeyTiles, values: KeyTiles, bias: ScoreBias, head_dim: int
) -> QueryTiles:
    """Calls a kernel, with one tile of one head given twice.

    One alone the library divides among threads as it does a product without a batch, and a row gets other bits.
    """
    tiles = tiles.contiguous()
    scale = 1 / math.sqrt(head_dim)
    if tiles.shape[:2] != (1, 1):
        return kernel(tiles, keys, values, bias, scale)
    tiles, keys, values, bias = (tensor.expand(2, -1, -1, -1) for tensor in (tiles, keys, values, bias))
    return kernel(tiles, keys, values, bias, scale)[:1]


def _to_tiles(queries: GroupedQueries, per_tile: int, tile_rows: int) -> QueryTiles:
    """Lays queries out in tiles of a fixed number of rows, the rest zeros."""
    num_queries, num_kv_heads, share, head_dim = queries.shape
    num_missing = -num_queries % per_tile
    padded = functional.pad(queries, (0, _missing(head_dim, queries), 0, 0, 0, 0, 0, num_missing))
    by_tile = padded.reshape(-1, per_tile, num_kv_heads, share, padded.shape[-1]).transpose(1, 2).flatten(2, 3)
    return functional.pad(by_tile, (0, 0, 0, tile_rows - per_tile * share))


def _tiles_of(keys: DenseKeys, width: int) -> KeyTiles:
    """Gives the first keys, whole tiles of them, where products expect them: at the edges of cache lines.

    Some kernels round differently where a matrix starts elsewhere. Caches hand out keys that lie well
    already, unless head_dim is odd; then this copies.
    """
    if keys.shape[2] > width:
        keys = keys[:, :, :width]
    num_missing, num_missing_dims = width - keys.shape[2], _missing(keys.shape[3], keys)
    if num_missing or num_missing_dims:
        return functional.pad(keys, (0, num_missing_dims, 0, num_missing))
    return keys if _lies_well(keys) else keys.clone(memory_format=torch.contiguous_format)


def _lies_well(keys: KeyTiles) -> bool:
    """Tells whether heads start at cache lines and hold one key after the other."""
    request_stride, head_stride, place_stride, _ = keys.stride()
    starts = keys.data_ptr() | (request_stride | head_stride) * keys.element_size()
    return place_stride == keys.shape[3] and not starts % _CACHE_LINE_BYTES


def _missing(head_dim: int, tensor: Tensor) -> int:
    """Gives how many zeros a head lacks to fill whole cache lines."""
    return -head_dim % (_CACHE_LINE_BYTES // tensor.element_size())


@lru_cache(maxsize=128)  # one step asks for each of these once a layer
def _bias(counts: tuple[int, ...], width: int, dtype: torch.dtype, tile_shape: tuple[int, int, int]) -> ScoreBias:
    """Gives what is added to scores: 0 where a query may look, -inf where not; filling rows look at one key."""
    per_tile, share, tile_rows = tile_shape
    visible = torch.ones(-(-len(counts) // per_tile), tile_rows, dtype=torch.int64)
    by_query = functional.pad(torch.tensor(counts), (0, -len(counts) % per_tile), value=1)
    visible[:, : per_tile * share] = by_query.repeat_interleave(share).view(len(visible), -1)
    hidden = torch.arange(width) >= visible[:, None, :, None]
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))


def _for_each_row(queries: DenseQueries, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Gives a count for each row where one stands for all of them."""
    return counts * len(queries) if len(counts) == 1 else counts

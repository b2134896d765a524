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

from refinfer.attention_layout import whole_tiles
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues

GroupedQueries = Float[Tensor, "q_len kv_heads share head_dim"]
"""Queries of one request; the query heads that share a key/value head stand side by side."""

RowKeys = Float[Tensor, "kv_heads kv_len head_dim"]
"""Keys or values of one request, from its first token on."""

KeyTiles = Float[Tensor, "kv_heads width padded_head_dim"]
"""The same in whole tiles."""

AnyKeys = Float[Tensor, "*any_rows kv_heads kv_len head_dim"]
"""Keys or values of one request, or of several in a rectangle."""

AnyTiles = Float[Tensor, "*any_rows kv_heads width padded_head_dim"]
"""The same in whole tiles."""

_CACHE_LINE_BYTES = 64


def attend_in_tiles(
    queries: GroupedQueries, keys: RowKeys, values: RowKeys, num_visible: Sequence[int], tile_rows: int
) -> GroupedQueries:
    """Computes softmax(q · k / sqrt(head_dim)) · v for the queries of one request.

    Args:
        queries: What asks.
        keys: Keys from the request's first token on; places that nobody looks at hold finite numbers.
        values: Values, likewise.
        num_visible: For each query how many keys it looks at, from the first on; of none for padding, which
            gives zeros.
        tile_rows: Rows of a tile of queries, at least as many as query heads share a key/value head.
    """
    parts = []
    for queries_of_width, width in _runs_of_width(num_visible):
        own = queries[queries_of_width]
        if not width:
            parts.append(torch.zeros_like(own))
            continue
        counts = tuple(num_visible[queries_of_width])
        parts.append(_attend(own, _tiles_of(keys, width), _tiles_of(values, width), counts, tile_rows))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def attend_with_one_query(
    queries: DenseQueries, keys: DenseKeys, values: DenseValues, num_visible: tuple[int, ...], tile_rows: int
) -> DenseQueries:
    """Computes what `attend_in_tiles` does for one query of each of some requests, in one call for all of them.

    A decoding step of many requests would spend much of its time around calls.

    Args:
        queries: What asks.
        keys: Keys from each request's first token on; places that nobody looks at hold finite numbers.
        values: Values, likewise.
        num_visible: For each request how many keys its query looks at; all of them fill as many tiles.
        tile_rows: As for `attend_in_tiles`.
    """
    num_rows, num_heads, _, head_dim = queries.shape
    _, num_kv_heads, num_places, _ = keys.shape
    share, width = num_heads // num_kv_heads, whole_tiles(num_visible[0])
    num_missing = _missing(head_dim, queries)
    if num_missing or num_places != width or not _lies_well(keys) or not _lies_well(values):
        keys, values = _tiles_of(keys, width), _tiles_of(values, width)
    tile = queries.reshape(num_rows, num_kv_heads, share, head_dim)
    if num_missing or share < tile_rows:
        tile = functional.pad(tile, (0, num_missing, 0, tile_rows - share))
    output = functional.scaled_dot_product_attention(
        tile,
        keys,
        values,
        attn_mask=_bias(num_visible, width, queries.dtype, (1, tile_rows, tile_rows)),
        scale=1 / math.sqrt(head_dim),
    )
    return output[:, :, :share, :head_dim].reshape(num_rows, num_heads, 1, head_dim)


def _runs_of_width(num_visible: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Cuts neighbouring queries into runs over the same whole tiles of keys."""
    start = 0
    for width, run in groupby(num_visible, key=whole_tiles):
        stop = start + len(list(run))
        yield slice(start, stop), width
        start = stop


def _attend(
    queries: GroupedQueries, keys: KeyTiles, values: KeyTiles, counts: tuple[int, ...], tile_rows: int
) -> GroupedQueries:
    num_queries, _, share, head_dim = queries.shape
    per_tile = tile_rows // share
    bias = _bias(counts, keys.shape[1], queries.dtype, (per_tile, share, tile_rows))
    tiles = _to_tiles(queries, per_tile, tile_rows)
    output = functional.scaled_dot_product_attention(
        tiles,
        keys.expand(len(tiles), -1, -1, -1),
        values.expand(len(tiles), -1, -1, -1),
        attn_mask=bias,
        scale=1 / math.sqrt(head_dim),
    )
    rows = output[:, :, : per_tile * share, :head_dim]
    by_query = rows.reshape(len(tiles), -1, per_tile, share, head_dim).transpose(1, 2)
    return by_query.flatten(0, 1)[:num_queries]


def _to_tiles(
    queries: GroupedQueries, per_tile: int, tile_rows: int
) -> Float[Tensor, "tiles kv_heads tile_rows padded_head_dim"]:
    """Lays queries out in tiles of a fixed number of rows, the rest zeros."""
    num_queries, num_kv_heads, share, head_dim = queries.shape
    num_missing = -num_queries % per_tile
    padded = functional.pad(queries, (0, _missing(head_dim, queries), 0, 0, 0, 0, 0, num_missing))
    by_tile = padded.reshape(-1, per_tile, num_kv_heads, share, padded.shape[-1]).transpose(1, 2).flatten(2, 3)
    return functional.pad(by_tile, (0, 0, 0, tile_rows - per_tile * share))


def _tiles_of(keys: AnyKeys, width: int) -> AnyTiles:
    """Gives the first keys, whole tiles of them, where products expect them: at the edges of cache lines.

    Some kernels round differently where a matrix starts elsewhere. Caches hand out keys that lie well
    already, unless head_dim is odd; then this copies.
    """
    keys = keys[..., :width, :]
    num_missing, num_missing_dims = width - keys.shape[-2], _missing(keys.shape[-1], keys)
    if num_missing or num_missing_dims:
        return functional.pad(keys, (0, num_missing_dims, 0, num_missing))
    return keys if _lies_well(keys) else keys.clone(memory_format=torch.contiguous_format)


def _lies_well(keys: Float[Tensor, "... kv_len any_head_dim"]) -> bool:
    """Tells whether heads start at cache lines and hold one key after the other."""
    *outer_strides, place_stride, _ = keys.stride()
    starts = keys.data_ptr()
    for stride in outer_strides:
        starts |= stride * keys.element_size()
    return place_stride == keys.shape[-1] and not starts % _CACHE_LINE_BYTES


def _missing(head_dim: int, tensor: Tensor) -> int:
    """Gives how many zeros a head lacks to fill whole cache lines."""
    return -head_dim % (_CACHE_LINE_BYTES // tensor.element_size())


@lru_cache(maxsize=128)  # one step asks for each of these once a layer
def _bias(
    counts: tuple[int, ...], width: int, dtype: torch.dtype, tile_shape: tuple[int, int, int]
) -> Float[Tensor, "tiles 1 any_rows kv_len"]:
    """Gives what is added to scores: 0 where a query may look, -inf where not; filling rows look at one key."""
    per_tile, share, tile_rows = tile_shape
    visible = torch.ones(-(-len(counts) // per_tile), tile_rows, dtype=torch.int64)
    by_query = functional.pad(torch.tensor(counts), (0, -len(counts) % per_tile), value=1)
    visible[:, : per_tile * share] = by_query.repeat_interleave(share).view(len(visible), -1)
    hidden = torch.arange(width) >= visible[:, None, :, None]
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))

"""Two ways to attend over tiles: the library's own attention, and two products with a softmax between them.

What both are given has a shape that follows from a query's place in its request (`refinfer.numerics.tiled_attention`);
the number of tiles alone follows from company. Which way is taken is found out by trying it, see
`refinfer.numerics.self_check.tile_kernel`.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from refinfer.numerics.dtypes import compute_dtype

QueryTiles = Float[Tensor, "tiles kv_heads tile_rows padded_head_dim"]
"""Queries in tiles of a fixed number of rows; also their attention output."""

KeyTiles = Float[Tensor, "requests kv_heads width padded_head_dim"]
"""Keys or values in whole tiles: of as many requests as there are tiles of queries, or of one to which all belong."""

ScoreBias = Float[Tensor, "tiles 1 tile_rows width"]
"""What is added to scores: 0 where a query may look, -inf where not."""

_SLICE_ALIGNMENT_BYTES = 64 if torch.backends.cpu.get_cpu_capability().startswith("AVX512") else 16
"""Without AVX-512, 16 were enough: 0 of 17,010 tries differed in each dtype with 2 threads, while odd rows did."""


@runtime_checkable
class TileKernel(Protocol):
    """Computes softmax(scale · q · k + bias) · v for tiles of queries, each tile by itself.

    It is never called with one tile of one head alone, which the library divides among threads in another way.
    """

    def tile_rows(self, share: int, dtype: torch.dtype) -> int:
        """Gives the rows of a tile of queries: enough for the query heads that share a key/value head."""
        ...

    def __call__(
        self, tiles: QueryTiles, keys: KeyTiles, values: KeyTiles, bias: ScoreBias, scale: float
    ) -> QueryTiles:
        """Gives the attention output of tiles."""
        ...


class LibraryKernel:
    """The library's attention, which holds no more scores at once than its threads work on."""

    def tile_rows(self, share: int, dtype: torch.dtype) -> int:
        """Gives the rows of a tile of queries.

        Each thread of the library's attention works in a slice of one buffer, whose length grows by two numbers a row.
        Slices that started anywhere gave a row other bits, depending on the thread it fell to;
        so there are as many rows as keep them aligned.
        """
        multiple = _SLICE_ALIGNMENT_BYTES // (2 * compute_dtype(dtype).itemsize)
        return -(-share // multiple) * multiple

    def __call__(
        self, tiles: QueryTiles, keys: KeyTiles, values: KeyTiles, bias: ScoreBias, scale: float
    ) -> QueryTiles:
        """Gives the attention output of tiles."""
        keys, values = (tensor.expand(len(tiles), -1, -1, -1) for tensor in (keys, values))
        return functional.scaled_dot_product_attention(tiles, keys, values, attn_mask=bias, scale=scale)


class ProductKernel:
    """Batched products: twice as fast as the library's attention where each tile has few rows and keys of its own."""

    @staticmethod
    def is_available(dtype: torch.dtype) -> bool:
        """Tells whether it is made for a dtype: in float64 few products differ, and in half precision scores round."""
        return dtype == torch.float32

    def tile_rows(self, share: int, dtype: torch.dtype) -> int:  # noqa: ARG002
        """Gives the rows of a tile of queries: no more than are asked for, but two where that is one.

        Several queries of a prompt can then share a tile where each head has keys of its own.
        """
        return max(2, share)

    def __call__(
        self, tiles: QueryTiles, keys: KeyTiles, values: KeyTiles, bias: ScoreBias, scale: float
    ) -> QueryTiles:
        """Gives the attention output of tiles."""
        scaled = tiles * scale
        if len(keys) == len(tiles):
            scores = torch.bmm(scaled.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
            weights = scores.view(*tiles.shape[:3], -1).add_(bias).softmax(-1)
            return torch.bmm(weights.flatten(0, 1), values.flatten(0, 1)).view(tiles.shape)
        # A batch has one stride, and tiles that share keys have two: so one call for each head, without a copy of keys.
        outputs = []
        for head in range(keys.shape[1]):
            own_keys, own_values = (tensor[0, head].expand(len(tiles), -1, -1) for tensor in (keys, values))
            scores = torch.bmm(scaled[:, head], own_keys.transpose(1, 2))
            outputs.append(torch.bmm(scores.add_(bias[:, 0]).softmax(-1), own_values))
        return torch.stack(outputs, dim=1)

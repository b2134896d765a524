"""Three ways to multiply rows by a weight that stays: as the library does it, packed once, or in tiles of rows."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Weight = Float[Tensor, "out_width in_width"]
Bias = Float[Tensor, " out_width"]
Rows = Float[Tensor, "tokens in_width"]
Products = Float[Tensor, "tokens out_width"]

MAX_PROBED_ROWS = 256
"""More rows are multiplied by several calls, so that what was probed at load is all that ever runs."""

_TILE_ROWS = 32
"""Rows of a tile; tiles of 16 keep the promise too, but a tile of bfloat16 would then start off a cache line."""


@runtime_checkable
class LinearProduct(Protocol):
    """Multiplies rows by a weight that it was made of, and adds the bias."""

    def __call__(self, inputs: Rows) -> Products:
        """Computes inputs · weightᵀ + bias."""
        ...


class PlainProduct:
    """The library's product as it comes.

    Args:
        weight: What rows are multiplied by, laid out as checkpoints store it.
        bias: Added to each row, if there is one.
        max_rows: Most rows of one call; None sets no limit.
    """

    def __init__(self, weight: Weight, bias: Bias | None, *, max_rows: int | None = None) -> None:
        self._weight = weight
        self._bias = bias
        self._max_rows = max_rows

    @staticmethod
    def multiplies_row_by_row(dtype: torch.dtype) -> bool:
        """Whether the library adds up each row of a dtype by itself, however many rows there are.

        It does so in half precision where oneDNN has no instructions for it. Where oneDNN has, the kernel follows
        from the number of rows, and a few rows in a thousand get other bits alone.
        """
        name = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}.get(dtype, "")
        is_supported = getattr(torch.ops.mkldnn, name, None) if name else None
        return is_supported is not None and not is_supported()

    def __call__(self, inputs: Rows) -> Products:
        """Computes inputs · weightᵀ + bias."""
        if self._max_rows is not None and len(inputs) > self._max_rows:
            return torch.cat([self(rows) for rows in torch.split(inputs, self._max_rows)])
        return functional.linear(inputs, self._weight, self._bias)


class PackedProduct:
    """A product of oneDNN over a weight that was brought into its own order once, which holds a copy of it.

    This is what torch's compiler does with weights that stay. The two names it is reached by are private,
    so nothing else in the project uses them.

    Args:
        weight: What rows are multiplied by, in float32.
        bias: Added to each row, if there is one.
        pads_single_row: Whether a row that comes alone is multiplied together with a row of zeros.
    """

    def __init__(self, weight: Weight, bias: Bias | None, *, pads_single_row: bool) -> None:
        self._packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight, _TILE_ROWS)  # noqa: SLF001
        self._bias = bias
        self.pads_single_row = pads_single_row

    @staticmethod
    def is_available(dtype: torch.dtype) -> bool:
        """Tells whether this torch can pack a weight of a dtype, and bits of float32 survive it."""
        has_names = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
        return dtype == torch.float32 and torch.backends.mkldnn.is_available() and has_names  # type: ignore[no-untyped-call]

    def __call__(self, inputs: Rows) -> Products:
        """Computes inputs · weightᵀ + bias."""
        if len(inputs) == 1 and self.pads_single_row:
            return self._multiply(functional.pad(inputs, (0, 0, 0, 1)))[:1]
        if len(inputs) <= MAX_PROBED_ROWS:
            return self._multiply(inputs)
        return torch.cat([self(rows) for rows in torch.split(inputs, MAX_PROBED_ROWS)])

    def _multiply(self, inputs: Rows) -> Products:
        products: Products = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001
            inputs, self._packed_weight, self._bias, "none", [], ""
        )
        return products


class TiledProduct:
    """The library's product, always on the same number of rows: the last tile is filled up with zeros.

    Args:
        weight: What rows are multiplied by, laid out as checkpoints store it.
        bias: Added to each row, if there is one.
    """

    def __init__(self, weight: Weight, bias: Bias | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, inputs: Rows) -> Products:
        """Computes inputs · weightᵀ + bias."""
        num_missing = -len(inputs) % _TILE_ROWS
        padded = functional.pad(inputs, (0, 0, 0, num_missing)) if num_missing else inputs
        tiles = [functional.linear(tile, self._weight, self._bias) for tile in torch.split(padded, _TILE_ROWS)]
        return tiles[0][: len(inputs)] if len(tiles) == 1 else torch.cat(tiles)[: len(inputs)]

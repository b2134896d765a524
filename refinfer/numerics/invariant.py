"""The invariant manner: a row's bits follow from its request alone, whatever runs beside it."""

import torch
from jaxtyping import Float
from torch import Tensor

from refinfer.attention_layout import AttentionLayout, whole_tiles
from refinfer.numerics.dtypes import compute_dtype
from refinfer.numerics.plain import PlainNumerics
from refinfer.numerics.products import Bias, LinearProduct, Weight
from refinfer.numerics.self_check import ProductMaker, product_maker
from refinfer.numerics.tiled_attention import attend_in_tiles, attend_with_one_query
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues

_SLICE_ALIGNMENT_BYTES = 64 if torch.backends.cpu.get_cpu_capability().startswith("AVX512") else 16
"""Without AVX-512, 16 were enough: 0 of 17,010 tries differed in each dtype with 2 threads, while odd rows did."""


def tile_rows_for(share: int, dtype: torch.dtype) -> int:
    """Gives the rows of a tile of queries: enough for the query heads that share a key/value head.

    Each thread of the library's attention works in a slice of one buffer, whose length grows by two numbers a row.
    Slices that started anywhere gave a row other bits, depending on the thread it fell to;
    so there are as many rows as keep them aligned.
    """
    multiple = _SLICE_ALIGNMENT_BYTES // (2 * compute_dtype(dtype).itemsize)
    return -(-share // multiple) * multiple


class InvariantNumerics(PlainNumerics):
    """Operations of fixed shape or of fixed order, so that neither company nor chunks change a bit.

    Norm and rotary turning are the plain manner's: they compute each row or element by itself.
    `refinfer.numerics.self_check` holds every operation to that on the machine it runs on.
    See `Numerics` for what each method computes.
    """

    def __init__(self) -> None:
        self._maker_by_shape: dict[tuple[object, ...], ProductMaker] = {}

    def prepare_linear(self, weight: Weight, bias: Bias | None) -> LinearProduct:
        """Makes the cheapest product by a weight that keeps the promise here.

        Raises:
            NumericsError: None does.
        """
        shape = (weight.shape, weight.dtype, bias is None)
        if shape not in self._maker_by_shape:
            self._maker_by_shape[shape] = product_maker(weight, bias)
        return self._maker_by_shape[shape](weight, bias)

    def silu(self, inputs: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens width"]:
        """Computes x · sigmoid(x) as x / (1 + exp(-x)).

        The library's own function takes another formula for the last elements of a call.
        """
        wide = inputs.to(compute_dtype(inputs.dtype))
        return (wide / torch.exp(-wide).add_(1)).to(inputs.dtype)

    def attention(
        self, queries: DenseQueries, keys: DenseKeys, values: DenseValues, layout: AttentionLayout
    ) -> DenseQueries:
        """Computes softmax(q · k / sqrt(head_dim)) · v for each head, request by request."""
        num_heads, num_kv_heads = queries.shape[1], keys.shape[1]
        share = num_heads // num_kv_heads
        tile_rows = tile_rows_for(share, queries.dtype)
        paddings = _for_each_row(queries, layout.num_padding_tokens)
        missing = _for_each_row(queries, layout.num_missing_tokens)
        if layout.num_queries == 1 and not any(paddings):
            counts = tuple(layout.visible_ends[0] - num_missing for num_missing in missing)
            if whole_tiles(min(counts)) == whole_tiles(max(counts)):
                return attend_with_one_query(queries, keys, values, counts, tile_rows)
        outputs = []
        for row, (num_padding, num_missing) in enumerate(zip(paddings, missing, strict=True)):
            own_queries = queries[row].transpose(0, 1)  # q_len heads head_dim
            grouped = own_queries.reshape(len(own_queries), num_kv_heads, share, -1)
            num_visible = [max(0, end - num_missing - num_padding) for end in layout.visible_ends]
            own_keys, own_values = keys[row, :, num_padding:], values[row, :, num_padding:]
            output = attend_in_tiles(grouped, own_keys, own_values, num_visible, tile_rows)
            outputs.append(output.flatten(1, 2).transpose(0, 1))
        return torch.stack(outputs)


def _for_each_row(queries: DenseQueries, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Gives a count for each row where one stands for all of them."""
    return counts * len(queries) if len(counts) == 1 else counts

"""The invariant manner: a row's bits follow from its request alone, whatever runs beside it."""

import torch
from jaxtyping import Float
from torch import Tensor

from refinfer.attention_layout import AttentionLayout
from refinfer.numerics.attention_check import tile_kernel
from refinfer.numerics.dtypes import compute_dtype
from refinfer.numerics.plain import PlainNumerics
from refinfer.numerics.products import Bias, LinearProduct, Weight
from refinfer.numerics.self_check import ProductMaker, product_maker
from refinfer.numerics.tile_kernels import TileKernel
from refinfer.numerics.tiled_attention import attend
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues


class InvariantNumerics(PlainNumerics):
    """Operations of fixed shape or of fixed order, so that neither company nor chunks change a bit.

    Norm and rotary turning are the plain manner's: they compute each row or element by itself.
    `refinfer.numerics.self_check` holds every operation to that on the machine it runs on.
    See `Numerics` for what each method computes.
    """

    def __init__(self) -> None:
        self._maker_by_shape: dict[tuple[object, ...], ProductMaker] = {}
        self._kernel_by_widths: dict[tuple[object, ...], TileKernel] = {}

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
        num_kv_heads, head_dim = keys.shape[1], keys.shape[3]
        widths = (queries.shape[1], num_kv_heads, head_dim, queries.dtype, torch.get_num_threads())
        kernel = self._kernel_by_widths.get(widths)
        if kernel is None:
            kernel = self._kernel_by_widths[widths] = tile_kernel(
                queries.shape[1], num_kv_heads, head_dim, queries.dtype
            )
        return attend(queries, keys, values, layout, kernel)

"""The plain manner: the torch operations that the reference uses, so that equal shapes give equal bits."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from refinfer.attention_layout import AttentionLayout
from refinfer.numerics.dtypes import compute_dtype
from refinfer.numerics.products import Bias, LinearProduct, PlainProduct, Weight
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues, PositionIds, RotaryTable


class PlainNumerics:
    """Library operations as they come; a row's bits may depend on how many rows run with it.

    See `Numerics` for what each method computes.
    """

    def prepare_linear(self, weight: Weight, bias: Bias | None) -> LinearProduct:
        """Makes the product by a weight: the library's, as it comes."""
        return PlainProduct(weight, bias)

    def rms_norm(
        self,
        inputs: Float[Tensor, "tokens width"],
        weight: Float[Tensor, " width"],
        eps: float,
    ) -> Float[Tensor, "tokens width"]:
        """Divides each row by its root mean square and scales it."""
        wide = inputs.to(compute_dtype(inputs.dtype))
        mean_square = wide.pow(2).mean(-1, keepdim=True)
        return weight * (wide * torch.rsqrt(mean_square + eps)).to(inputs.dtype)

    def rotary_tables(
        self,
        position_ids: PositionIds,
        frequencies: Float[Tensor, " half_head_dim"],
        dtype: torch.dtype,
    ) -> tuple[RotaryTable, RotaryTable]:
        """Gives cosine and sine of each position's angles, in the model's dtype."""
        half_angles = position_ids[:, None].to(frequencies.dtype) * frequencies
        angles = torch.cat((half_angles, half_angles), dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def rotate(
        self,
        vectors: Float[Tensor, "tokens any_heads head_dim"],
        cos: RotaryTable,
        sin: RotaryTable,
    ) -> Float[Tensor, "tokens any_heads head_dim"]:
        """Turns dimension i together with dimension i + head_dim / 2."""
        first, second = vectors.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return vectors * cos[:, None, :] + turned * sin[:, None, :]

    def silu(self, inputs: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens width"]:
        """Computes x · sigmoid(x), element by element."""
        return functional.silu(inputs)

    def attention(
        self,
        queries: DenseQueries,
        keys: DenseKeys,
        values: DenseValues,
        layout: AttentionLayout,
    ) -> DenseQueries:
        """Computes softmax(q · k / sqrt(head_dim)) · v for each head."""
        return functional.scaled_dot_product_attention(
            queries,
            keys[:, :, : layout.num_keys],
            values[:, :, : layout.num_keys],
            attn_mask=layout.mask if layout.needs_mask else None,
            is_causal=not layout.needs_mask and layout.num_queries > 1,
            enable_gqa=queries.shape[1] != keys.shape[1],
        )

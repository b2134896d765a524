"""A linear layer: a weight, perhaps a bias, and the manner of numerics that multiplies them."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from refinfer.numerics import LinearProduct, Numerics


def unloaded_parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """Makes a parameter that has a shape and no memory; the checkpoint loader puts the values in."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device="meta"), requires_grad=False)


class Linear(nn.Module):
    """Multiplies by `weight`, laid out (out_width, in_width) as checkpoints store it, and adds `bias`.

    Args:
        in_width: Width of a row that comes in.
        out_width: Width of a row that goes out.
        has_bias: Whether there is a bias.
        dtype: Dtype of weight and bias.
        numerics: The manner that multiplies.
    """

    def __init__(
        self, in_width: int, out_width: int, *, has_bias: bool, dtype: torch.dtype, numerics: Numerics
    ) -> None:
        super().__init__()
        self.weight = unloaded_parameter(out_width, in_width, dtype=dtype)
        self.bias = unloaded_parameter(out_width, dtype=dtype) if has_bias else None
        self.numerics = numerics
        self._product: LinearProduct | None = None

    def prepare(self) -> LinearProduct:
        """Readies the product by the weight and bias that stand here now; to be called again when they change.

        Raises:
            NumericsError: The manner of numerics finds none that keeps its promise.
        """
        self._product = self.numerics.prepare_linear(self.weight, self.bias)
        return self._product

    def forward(self, inputs: Float[Tensor, "tokens in_width"]) -> Float[Tensor, "tokens out_width"]:
        """Computes inputs · weightᵀ + bias."""
        product = self._product or self.prepare()
        return product(inputs)

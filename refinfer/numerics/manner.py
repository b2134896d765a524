"""The interface of a manner of numerics: the operations whose rounding is chosen here and nowhere else."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from refinfer.attention_layout import AttentionLayout
from refinfer.numerics.products import Bias, LinearProduct, Weight
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues, PositionIds, RotaryTable


@runtime_checkable
class Numerics(Protocol):
    """One manner of adding up: the model calls these and no other operation that rounds, but for residual sums."""

    def prepare_linear(self, weight: Weight, bias: Bias | None) -> LinearProduct:
        """Makes what multiplies rows by a weight that stays, and adds the bias."""
        ...

    def rms_norm(
        self,
        inputs: Float[Tensor, "tokens width"],
        weight: Float[Tensor, " width"],
        eps: float,
    ) -> Float[Tensor, "tokens width"]:
        """Divides each row by its root mean square and scales it (Zhang & Sennrich 2019, equation 4)."""
        ...

    def rotary_tables(
        self,
        position_ids: PositionIds,
        frequencies: Float[Tensor, " half_head_dim"],
        dtype: torch.dtype,
    ) -> tuple[RotaryTable, RotaryTable]:
        """Gives cosine and sine of each position's angles, in the model's dtype."""
        ...

    def rotate(
        self,
        vectors: Float[Tensor, "tokens any_heads head_dim"],
        cos: RotaryTable,
        sin: RotaryTable,
    ) -> Float[Tensor, "tokens any_heads head_dim"]:
        """Turns dimension i together with dimension i + head_dim / 2, as Llama checkpoints are stored."""
        ...

    def silu(self, inputs: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens width"]:
        """Computes x · sigmoid(x), element by element."""
        ...

    def attention(
        self,
        queries: DenseQueries,
        keys: DenseKeys,
        values: DenseValues,
        layout: AttentionLayout,
    ) -> DenseQueries:
        """Computes softmax(q · k / sqrt(head_dim)) · v for each head (Vaswani et al. 2017, equation 1).

        Each key/value head serves a run of neighbouring query heads (Ainslie et al. 2023).
        The layout says which keys a query looks at.
        """
        ...

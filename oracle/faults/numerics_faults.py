"""Faults of the invariant manner: one ingredient of its promise taken away at a time.

The self-check at load is out of the way while they are planted, so that the properties have to see them.
"""

import torch
from torch import Tensor

from oracle.faults.registry import Area, Fault, Replacement, one_replacement
from refinfer.numerics import InvariantNumerics, PlainNumerics, compute_dtype

products_of_any_row_count = Fault(
    "products_of_any_row_count",
    Area.NUMERICS,
    "products run on as many rows as come, by the library's kernel for that count",
    (Replacement(InvariantNumerics, "prepare_linear", PlainNumerics.prepare_linear),),
    models=("ggml-org/llama.cpp#6950 (15.01)", "sgl-project/sglang#33417 (15.07)"),
    component=("numerics/invariant.py", "numerics/products.py"),
    needs=("batch",),
    seen_by=("bitwise",),
)

attention_of_any_width = Fault(
    "attention_of_any_width",
    Area.NUMERICS,
    "attention adds up over as many keys and queries as come, not over tiles of logical positions",
    (Replacement(InvariantNumerics, "attention", PlainNumerics.attention),),
    models=("AtomaAI/atoma-infer#257 (15.06)",),
    component=("numerics/invariant.py", "numerics/tiled_attention.py"),
    needs=(),
    seen_by=("bitwise",),
)

silu_with_a_tail = Fault(
    "silu_with_a_tail",
    Area.NUMERICS,
    "SiLU is the library's, which takes another formula for the last elements of a call",
    (Replacement(InvariantNumerics, "silu", PlainNumerics.silu),),
    models=None,
    component=("numerics/invariant.py",),
    needs=("batch",),
    seen_by=("bitwise",),
)


@one_replacement(
    "norm_by_product",
    Area.NUMERICS,
    "the norm adds up squares by a matrix product, whose order depends on the number of rows",
    InvariantNumerics,
    "rms_norm",
    models=("vllm-project/vllm#53257 (15.08)",),
    component=("numerics/invariant.py", "numerics/plain.py"),
    needs=("batch",),
    seen_by=("bitwise",),
)
def norm_by_product(self: InvariantNumerics, inputs: Tensor, weight: Tensor, eps: float) -> Tensor:  # noqa: ARG001
    """Adds up with the library's product."""
    wide = inputs.to(compute_dtype(inputs.dtype))
    width = inputs.shape[1]
    mean_square = (wide * wide) @ torch.full((width, 1), 1 / width, dtype=wide.dtype)
    return weight * (wide * torch.rsqrt(mean_square + eps)).to(inputs.dtype)


FAULTS = (products_of_any_row_count, attention_of_any_width, silu_with_a_tail, norm_by_product)

"""The words for tensor axes, and names for the tensors that travel between packages.

Axis words, the same everywhere: `batch`, `q_len`, `kv_len`, `tokens` (packed, no padding), `rows`,
`heads`, `kv_heads`, `head_dim`, `hidden`, `intermediate`, `vocab`, and for paged storage
`layers`, `blocks`, `block_size`, `slots`.
Dense tensors are laid out (`batch`, `heads`, length, `head_dim`).
"""

import numpy as np
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

TokenIds = Int[Tensor, " tokens"]
"""Token ids of everything that runs in one pass, request after request."""

PositionIds = Int[Tensor, " tokens"]
"""For each token that runs, its place in its own request, counted from 0."""

HiddenStates = Float[Tensor, "tokens hidden"]
"""The residual stream."""

Queries = Float[Tensor, "tokens heads head_dim"]
"""Queries of the tokens that run; also the per-head output, which has their shape."""

Keys = Float[Tensor, "tokens kv_heads head_dim"]
"""Keys of the tokens that run."""

Values = Float[Tensor, "tokens kv_heads head_dim"]
"""Values of the tokens that run."""

RotaryTable = Float[Tensor, "tokens head_dim"]
"""Cosine or sine of each token's rotary angles; the second half repeats the first."""

DenseQueries = Float[Tensor, "batch heads q_len head_dim"]
"""Queries as a rectangle."""

DenseKeys = Float[Tensor, "batch kv_heads kv_len head_dim"]
"""Keys as a rectangle."""

DenseValues = Float[Tensor, "batch kv_heads kv_len head_dim"]
"""Values as a rectangle."""

AttentionMask = Bool[Tensor, "batch 1 q_len kv_len"]
"""True where a query may look at a key."""

Logits = Float[Tensor, "rows vocab"]
"""Scores before any sampling step, one row for each token that was asked for."""

LogitsRow = Float[np.ndarray, " vocab"]
"""The logits of one token to come, as the sampler reads them."""

ProcessedLogits = Float64[np.ndarray, " vocab"]
"""One row after sampling steps; minus infinity where a token is out of the question."""

Probabilities = Float64[np.ndarray, " vocab"]
"""What one token is drawn from; sums to 1."""

SlotMapping = Int[Tensor, " tokens"]
"""For each token that runs, the slot its keys and values go to: block id × block size + offset."""

PagedBlocks = Float[Tensor, "layers blocks block_size kv_heads head_dim"]
"""Keys or values of whole blocks."""

PagedSlots = Float[Tensor, "layers slots kv_heads head_dim"]
"""Keys or values of a paged cache, block after block; behind them one slot of zeros that no block has."""

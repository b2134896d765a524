"""No cache: every token of a request runs in every step, and attends to those before it."""

from collections.abc import Sequence

import torch

from refinfer.attention_layout import AttentionLayout
from refinfer.cache.dense import to_dense, to_packed
from refinfer.errors import ShapeError
from refinfer.interfaces import AttentionFunction
from refinfer.shapes import Keys, Queries, Values


class CausalAttentionView:
    """Plain causal attention within each request.

    Args:
        num_tokens: How many of the packed tokens belong to each request, all of them from its start.
    """

    def __init__(self, num_tokens: Sequence[int]) -> None:
        self._num_tokens = list(num_tokens)
        self._layouts = [AttentionLayout(count, count) for count in num_tokens]

    def attend(
        self,
        layer_index: int,  # noqa: ARG002 - part of the protocol; nothing is kept by layer here
        queries: Queries,
        keys: Keys,
        values: Values,
        attention: AttentionFunction,
    ) -> Queries:
        """Gives the per-head attention output of the tokens that run; keeps nothing.

        Raises:
            ShapeError: More or fewer tokens run than the view was made for.
        """
        if len(queries) != sum(self._num_tokens):
            message = f"{len(queries)} tokens run through a view made for requests of {self._num_tokens} tokens"
            raise ShapeError(message, num_tokens=len(queries))
        parts = zip(
            torch.split(queries, self._num_tokens),
            torch.split(keys, self._num_tokens),
            torch.split(values, self._num_tokens),
            strict=True,
        )
        outputs = (
            attention(to_dense(q), to_dense(k), to_dense(v), layout)
            for (q, k, v), layout in zip(parts, self._layouts, strict=True)
        )
        return torch.cat([to_packed(output) for output in outputs])

"""The attention view of several requests at once: packed tokens cut up, each request asked by itself."""

from collections.abc import Sequence

import torch

from refinfer.interfaces import AttentionFunction, AttentionView
from refinfer.shapes import Keys, Queries, Values


class PackedAttentionView:
    """Hands each request's tokens to that request's own view.

    Args:
        views: One view for each request, in the order in which their tokens are packed.
        num_scheduled_tokens: How many of the packed tokens belong to each request.
    """

    def __init__(self, views: Sequence[AttentionView], num_scheduled_tokens: Sequence[int]) -> None:
        self._views = list(views)
        self._num_scheduled_tokens = list(num_scheduled_tokens)

    def attend(
        self,
        layer_index: int,
        queries: Queries,
        keys: Keys,
        values: Values,
        attention: AttentionFunction,
    ) -> Queries:
        """Gives the per-head attention output of the tokens that run."""
        parts = zip(
            self._views,
            torch.split(queries, self._num_scheduled_tokens),
            torch.split(keys, self._num_scheduled_tokens),
            torch.split(values, self._num_scheduled_tokens),
            strict=True,
        )
        return torch.cat([view.attend(layer_index, q, k, v, attention) for view, q, k, v in parts])

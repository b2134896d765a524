"""The two protocols everything hangs on: an attention view, and a KV cache that hands one out."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from refinfer.attention_layout import AttentionLayout
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues, Keys, Queries, Values

AttentionFunction = Callable[[DenseQueries, DenseKeys, DenseValues, AttentionLayout], DenseQueries]
"""The attention core of a manner of numerics: `Numerics.attention`."""


@runtime_checkable
class AttentionView(Protocol):
    """What `Llama.forward` is handed to attend with: the past of one mode, and its mask."""

    def attend(
        self,
        layer_index: int,
        queries: Queries,
        keys: Keys,
        values: Values,
        attention: AttentionFunction,
    ) -> Queries:
        """Gives the per-head attention output of the tokens that run.

        Keys and values are written to the cache behind the view, as scratch:
        they become part of the request when the cache's `advance` is called.

        Args:
            layer_index: Which layer asks, counted from 0.
            queries: Rotated queries of the packed tokens.
            keys: Rotated keys of the packed tokens.
            values: Values of the packed tokens.
            attention: The model's attention core, called on dense tensors.
        """
        ...


@runtime_checkable
class KVCache(Protocol):
    """Keys and values of one request, kept between steps."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens of the request whose keys and values are in the cache."""
        ...

    def attention_view(self, num_scheduled_tokens: int) -> AttentionView:
        """Gives the view for the next tokens of this request; changes no length."""
        ...

    def advance(self, num_tokens: int) -> None:
        """Makes the tokens that were written last part of the request."""
        ...

"""The continuous cache: for each request one run of keys and values that grows with it."""

import torch

from refinfer.attention_layout import KEY_TILE, AttentionLayout, whole_tiles
from refinfer.cache.dense import to_dense, to_packed, unwritten
from refinfer.config import ModelConfig
from refinfer.errors import CapacityError, InvariantError
from refinfer.interfaces import AttentionFunction
from refinfer.shapes import DenseKeys, DenseValues, Keys, Queries, Values

_FIRST_CAPACITY = KEY_TILE
"""Token places allocated at first; the capacity doubles from there, so that growth costs little per token."""


class ContinuousCache:
    """Keys and values of one request, laid out (layers, kv_heads, capacity, head_dim).

    Length is the only truth: what lies past `num_computed_tokens` is scratch.
    The last tile of keys is read whole, so the places past the tokens that run hold zeros there. All others hold
    NaN until they are written, and so do those of the tokens that run.

    Args:
        config: The model's shape.
        dtype: Dtype of keys and values, which is the model's.
        max_tokens: Most tokens the request can have; None sets no limit.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, *, max_tokens: int | None = None) -> None:
        self._max_tokens = max_tokens
        self._num_computed_tokens = 0
        self._num_written_tokens = 0
        self._num_touched_places = 0
        shape = (config.num_layers, config.num_kv_heads, 0, config.head_dim)
        self._keys = unwritten(*shape, dtype=dtype)
        self._values = unwritten(*shape, dtype=dtype)

    @property
    def num_computed_tokens(self) -> int:
        """Tokens of the request whose keys and values are in the cache."""
        return self._num_computed_tokens

    @property
    def capacity(self) -> int:
        """Token places that are allocated."""
        return self._keys.shape[2]

    def attention_view(self, num_scheduled_tokens: int) -> "ContinuousAttentionView":
        """Gives the view for the next tokens of this request, and makes room for them.

        Raises:
            CapacityError: The request would outgrow `max_tokens`.
        """
        end = self._num_computed_tokens + num_scheduled_tokens
        if self._max_tokens is not None and end > self._max_tokens:
            message = (
                f"{num_scheduled_tokens} more tokens after {self._num_computed_tokens} would pass the cache's limit "
                f"of {self._max_tokens}; end the request or give it a larger cache"
            )
            raise CapacityError(message, num_tokens=end, max_tokens=self._max_tokens)
        if end > self.capacity:
            capacity = max(_FIRST_CAPACITY, 2 * self.capacity, whole_tiles(end))
            # Both or none: there may be memory for one only.
            self._keys, self._values = self._grown(self._keys, capacity), self._grown(self._values, capacity)
        self._ready(end)
        self._num_written_tokens = self._num_computed_tokens
        return ContinuousAttentionView(self, AttentionLayout(num_scheduled_tokens, end))

    def advance(self, num_tokens: int) -> None:
        """Makes the tokens that were written last part of the request.

        Raises:
            InvariantError: More tokens than the last view wrote, or fewer than none.
        """
        if not 0 <= num_tokens <= self._num_written_tokens - self._num_computed_tokens:
            message = (
                f"the cache cannot advance from {self._num_computed_tokens} by {num_tokens} tokens; "
                f"{self._num_written_tokens} are written"
            )
            raise InvariantError(message, num_tokens=num_tokens)
        self._num_computed_tokens += num_tokens

    def write_and_read(self, layer_index: int, keys: Keys, values: Values) -> tuple[DenseKeys, DenseValues]:
        """Writes the new tokens past the computed ones; gives both, in whole tiles."""
        start = self._num_computed_tokens
        end = start + len(keys)
        self._keys[layer_index, :, start:end] = keys.transpose(0, 1)  # kv_heads tokens head_dim
        self._values[layer_index, :, start:end] = values.transpose(0, 1)
        self._num_written_tokens = end
        places = slice(whole_tiles(end))
        return self._keys[None, layer_index, :, places], self._values[None, layer_index, :, places]

    def _ready(self, end: int) -> None:
        """Puts NaN where the next tokens go, to show a layer they skip, and zeros in the rest of the last tile.

        Of a pass that was rolled back nothing is left in a tile that is read.
        """
        # places: 0 .. computed .. end .. stop .. capacity
        #          tokens     NaN    zeros  NaN, or what a pass that was rolled back has left
        start, stop = self._num_computed_tokens, whole_tiles(end)
        is_same_tile = stop == whole_tiles(self._num_touched_places)  # then it holds zeros past those places
        zeros = slice(end, self._num_touched_places if is_same_tile else stop)
        for storage in (self._keys, self._values):
            storage[:, :, start:end] = float("nan")
            storage[:, :, zeros] = 0
        self._num_touched_places = end

    def _grown(self, storage: torch.Tensor, capacity: int) -> torch.Tensor:
        layers, kv_heads, _, head_dim = storage.shape
        grown = unwritten(layers, kv_heads, capacity, head_dim, dtype=storage.dtype)
        grown[:, :, : self._num_computed_tokens] = storage[:, :, : self._num_computed_tokens]
        return grown


class ContinuousAttentionView:
    """What `ContinuousCache.attention_view` hands out for one step.

    Args:
        cache: The request's cache.
        layout: Where the tokens stand that run.
    """

    def __init__(self, cache: ContinuousCache, layout: AttentionLayout) -> None:
        self._cache = cache
        self._layout = layout

    def attend(
        self,
        layer_index: int,
        queries: Queries,
        keys: Keys,
        values: Values,
        attention: AttentionFunction,
    ) -> Queries:
        """Gives the per-head attention output of the tokens that run, and writes their keys and values."""
        if len(queries) != self._layout.num_queries:
            message = f"{len(queries)} tokens run through a view made for {self._layout.num_queries}"
            raise InvariantError(message, num_tokens=len(queries))
        dense_keys, dense_values = self._cache.write_and_read(layer_index, keys, values)
        return to_packed(attention(to_dense(queries), dense_keys, dense_values, self._layout))

"""The static cache: one rectangle for a batch whose members never change, padded on the left.

"Static" means that membership of the batch is fixed. A row's *logical* position counts its own tokens
from 0; its *physical* position is where the rectangle holds them, later by the row's padding:

    physical      0   1   2   3   4 | 5   6
    row 0         .   .   a   b   c | d   e     2 padding places; c is logical 2, physical 4
    row 1         f   g   h   i   j | k   l     no padding
                  prompt            | decoded, one column a step
"""

from collections.abc import Sequence

import torch

from refinfer.attention_layout import KEY_TILE, AttentionLayout
from refinfer.cache.dense import unwritten
from refinfer.config import ModelConfig
from refinfer.errors import CapacityError, InvariantError, ShapeError
from refinfer.interfaces import AttentionFunction
from refinfer.shapes import DenseKeys, DenseValues, Keys, Queries, Values

_ROOM = KEY_TILE - 1
"""Columns past the written ones that a row's last tile can reach to."""


class StaticCache:
    """Keys and values of a whole batch, laid out (layers, batch, kv_heads, columns, head_dim).

    The first step runs every prompt whole; each later step runs one token of every row,
    of rows that have ended too, since they stay in the batch.
    Attention reads a row in whole tiles counted from its first token, so up to a tile of columns past
    the written ones holds zeros. What lies further on holds NaN, and so do the places of tokens until they are written.

    Args:
        config: The model's shape.
        dtype: Dtype of keys and values, which is the model's.
        num_prompt_tokens: Length of each row's prompt, at least 1.
        max_output_tokens: Most tokens that any row emits, at least 1; the last one never runs and needs no column.

    Raises:
        ShapeError: There is no row, or a prompt without a token.
    """

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        *,
        num_prompt_tokens: Sequence[int],
        max_output_tokens: int,
    ) -> None:
        if not num_prompt_tokens or min(num_prompt_tokens) < 1:
            message = f"a static batch needs rows of at least one token, got lengths {list(num_prompt_tokens)}"
            raise ShapeError(message, num_prompt_tokens=num_prompt_tokens)
        self._width = max(num_prompt_tokens)
        self._num_columns = 0
        self._num_written_columns = 0
        self._max_columns = self._width + max_output_tokens - 1
        self._num_padding_tokens = torch.tensor([self._width - length for length in num_prompt_tokens])
        self._num_clean_columns = 0
        num_columns = self._max_columns + _ROOM
        shape = (config.num_layers, len(num_prompt_tokens), config.num_kv_heads, num_columns, config.head_dim)
        self._keys = unwritten(*shape, dtype=dtype)
        self._values = unwritten(*shape, dtype=dtype)

    @property
    def batch_size(self) -> int:
        """Rows of the batch, ended ones included."""
        return len(self._num_padding_tokens)

    @property
    def max_columns(self) -> int:
        """Physical columns that tokens can have."""
        return self._max_columns

    @property
    def num_columns(self) -> int:
        """Physical columns that hold tokens."""
        return self._num_columns

    @property
    def num_computed_tokens(self) -> list[int]:
        """For each row, the tokens whose keys and values are in the cache."""
        return (self._num_columns - self._num_padding_tokens).clamp(min=0).tolist()

    def attention_view(self) -> "StaticAttentionView":
        """Gives the view for the next step: the prompts at first, then one token of every row.

        Raises:
            CapacityError: The rectangle is full.
        """
        num_new_columns = 1 if self._num_columns else self._width
        end = self._num_columns + num_new_columns
        if end > self._max_columns:
            message = f"the static cache has {self._max_columns} columns and all are used; build it with more"
            raise CapacityError(message, max_columns=self._max_columns)
        self._num_written_columns = self._num_columns
        self._clean(end + _ROOM)
        columns = torch.arange(self._num_columns, end)
        is_token = columns >= self._num_padding_tokens[:, None]  # batch q_len
        for storage in (self._keys, self._values):
            # A layer that skips these tokens must not be read as zeros later.
            storage[:, :, :, self._num_columns : end].masked_fill_(is_token[:, None, :, None], float("nan"))
        layout = AttentionLayout(num_new_columns, end, tuple(self._num_padding_tokens.tolist()))
        return StaticAttentionView(self, is_token, layout)

    def advance(self) -> None:
        """Makes the columns of the last view part of the rows.

        Raises:
            InvariantError: The last view has written none.
        """
        if self._num_written_columns == self._num_columns:
            message = f"the static cache cannot advance past its {self._num_columns} columns; no others are written"
            raise InvariantError(message, num_columns=self._num_columns)
        self._num_columns = self._num_written_columns

    def write_and_read(
        self, layer_index: int, is_token: torch.Tensor, keys: Keys, values: Values
    ) -> tuple[DenseKeys, DenseValues]:
        """Writes packed keys and values to their columns; gives the written columns and the room after them."""
        start, end = self._num_columns, self._num_columns + is_token.shape[1]
        dense_keys = self._keys[layer_index].transpose(1, 2)  # batch columns kv_heads head_dim
        dense_values = self._values[layer_index].transpose(1, 2)
        dense_keys[:, start:end][is_token] = keys
        dense_values[:, start:end][is_token] = values
        self._num_written_columns = end
        columns = slice(end + _ROOM)
        return self._keys[layer_index, :, :, columns], self._values[layer_index, :, :, columns]

    def _clean(self, end: int) -> None:
        """Puts zeros where numbers are read and multiplied by a weight of zero: padding at first, then room."""
        if end > self._num_clean_columns:
            columns = slice(self._num_clean_columns, end + KEY_TILE)
            self._keys[:, :, :, columns] = 0
            self._values[:, :, :, columns] = 0
            self._num_clean_columns = end + KEY_TILE


class StaticAttentionView:
    """Rectangular attention with a mask, for packed tokens that carry no padding.

    Args:
        cache: The batch's cache.
        is_token: For each row and each column that runs, true where a token stands, false on padding.
        layout: Which columns run and hold keys, and how many of them are padding.
    """

    def __init__(self, cache: StaticCache, is_token: torch.Tensor, layout: AttentionLayout) -> None:
        self._cache = cache
        self._is_token = is_token
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
        num_tokens = int(self._is_token.sum())
        if len(queries) != num_tokens:
            message = f"{len(queries)} tokens run through a view made for {num_tokens}"
            raise InvariantError(message, num_tokens=len(queries))
        dense_keys, dense_values = self._cache.write_and_read(layer_index, self._is_token, keys, values)
        dense_queries = queries.new_zeros(*self._is_token.shape, *queries.shape[1:])
        dense_queries[self._is_token] = queries  # batch q_len heads head_dim
        output = attention(dense_queries.transpose(1, 2), dense_keys, dense_values, self._layout)
        return output.transpose(1, 2)[self._is_token]

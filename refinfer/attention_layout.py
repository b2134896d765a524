"""Which keys may each query of a rectangle look at? What caches say and attention obeys."""

from dataclasses import dataclass
from functools import cached_property

import torch

from refinfer.errors import ShapeError
from refinfer.shapes import AttentionMask

KEY_TILE = 64
"""Key places are handed out in whole tiles of so many, counted from a request's first token."""


def whole_tiles(num_keys: int) -> int:
    """Rounds a number of key places up to whole tiles."""
    return -(-num_keys // KEY_TILE) * KEY_TILE


@dataclass(frozen=True)
class AttentionLayout:
    """Where queries and keys stand in a rectangle with one row for each request.

    Query columns are the last of the key columns: the last query stands in the last of `num_keys` columns.
    Where each row runs one query, rows may end earlier, each with its query in its own last column.
    A rectangle of keys may have more columns; those are room, hold finite numbers and are never looked at.

    Attributes:
        num_queries: Columns that run.
        num_keys: Columns that are written.
        num_padding_tokens: For each row, how many columns stand before its first token.
        num_missing_tokens: For each row, how many of the `num_keys` columns stand behind its last token.

    Raises:
        ShapeError: There are more queries than keys, no query, or a negative number of columns; or a row that runs
            several queries ends earlier than others.
    """

    num_queries: int
    num_keys: int
    num_padding_tokens: tuple[int, ...] = (0,)
    num_missing_tokens: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not 1 <= self.num_queries <= self.num_keys:
            message = (
                f"{self.num_queries} queries cannot be the last of {self.num_keys} keys; each needs a key of its own"
            )
            raise ShapeError(message, num_queries=self.num_queries, num_keys=self.num_keys)
        if min(self.num_padding_tokens, default=0) < 0:
            message = f"padding of {list(self.num_padding_tokens)} columns was given; a row has none or more"
            raise ShapeError(message, num_padding_tokens=self.num_padding_tokens)
        most_missing = max(self.num_missing_tokens, default=0)
        if (
            min(self.num_missing_tokens, default=0) < 0
            or most_missing >= self.num_keys
            or (most_missing and self.num_queries > 1)
        ):
            message = (
                f"rows that lack {list(self.num_missing_tokens)} of {self.num_keys} keys cannot run {self.num_queries} "
                "queries each; only rows with one query may end early, and each behind its first key"
            )
            raise ShapeError(message, num_missing_tokens=self.num_missing_tokens)

    @property
    def visible_ends(self) -> range:
        """For each query column, the first key column that it may not look at: the one past its own.

        In a row that ends early all columns stand as many places further left.
        """
        return range(self.num_keys - self.num_queries + 1, self.num_keys + 1)

    @property
    def needs_mask(self) -> bool:
        """Whether more must be said than "causal, the first query at the first key"."""
        return any(self.num_padding_tokens) or any(self.num_missing_tokens) or 1 < self.num_queries < self.num_keys

    @cached_property
    def mask(self) -> AttentionMask:
        """True where a query may look at a key.

        A padding query looks at itself alone: of a row that may look at nothing, some kernels make NaN, others zeros.
        """
        key_columns = torch.arange(self.num_keys)
        ends = torch.tensor(self.visible_ends)[:, None] - torch.tensor(self.num_missing_tokens)[:, None, None]
        starts = torch.tensor(self.num_padding_tokens)[:, None, None]
        is_visible = (key_columns < ends) & (key_columns >= starts)  # batch q_len kv_len
        is_own = key_columns == ends - 1
        is_padding = ends <= starts
        return (is_visible | (is_own & is_padding))[:, None]

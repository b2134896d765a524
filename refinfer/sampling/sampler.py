"""Picks the next token of each row."""

from refinfer.errors import InvariantError
from refinfer.shapes import Logits


def greedy_token_ids(logits: Logits) -> list[int]:
    """Gives each row's likeliest token; among equal logits the lowest id wins.

    The rule is a plain argmax, which gives the first of equals; a top-k does not keep that order.

    Raises:
        InvariantError: A logit is NaN, so memory was read that nobody wrote, or the model overflowed.
    """
    is_broken = logits.isnan().any(dim=-1)
    if is_broken.any():
        rows = is_broken.nonzero().flatten().tolist()
        message = (
            f"logits of rows {rows} hold NaN: unwritten cache memory was read, or the model overflowed its dtype "
            f"{logits.dtype}"
        )
        raise InvariantError(message, rows=rows)
    token_ids: list[int] = logits.argmax(dim=-1).tolist()
    return token_ids

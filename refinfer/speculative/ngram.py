"""Guesses that a request goes on as it went on before: its last few tokens are looked up in what it has so far."""

from collections.abc import Hashable, Sequence

import numpy as np

from refinfer.errors import ConfigError
from refinfer.speculative.proposer import Draft, DraftRequest

MAX_NGRAM = 3
"""The longest ending that is looked up; the value of the method's first publication (Saxena, 2023)."""


class NgramProposer:
    """Looks up the longest ending that stood there before, at its latest place, and gives what followed.

    Saxena, Prompt Lookup Decoding (2023); Yang et al., Inference with Reference: Lossless Acceleration of Large
    Language Models (2023), section 3. What followed may run into the guess itself: a text that repeats a
    period shorter than the guess goes on repeating it.

    Args:
        max_ngram: Tokens of the longest ending that is looked up, at least 1; shorter ones follow.

    Raises:
        ConfigError: No ending would be looked up.
    """

    def __init__(self, max_ngram: int = MAX_NGRAM) -> None:
        if max_ngram < 1:
            message = f"an n-gram of {max_ngram} tokens cannot be looked up; take at least 1"
            raise ConfigError(message, max_ngram=max_ngram)
        self._max_ngram = max_ngram

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Guesses for each request; an ending that never stood there before gives nothing."""
        return [Draft(self._guess(request)) for request in requests]

    def forget(self, key: Hashable) -> None:
        """Does nothing: nothing is kept."""

    def reset(self) -> None:
        """Do nothing: nothing is kept."""

    def _guess(self, request: DraftRequest) -> tuple[int, ...]:
        token_ids = list(request.token_ids)
        follower = find_follower(token_ids, self._max_ngram)
        if follower is None:
            return ()
        num_known = len(token_ids)
        for position in range(follower, follower + request.num_tokens):
            token_ids.append(token_ids[position])
        return tuple(token_ids[num_known:])


def find_follower(token_ids: Sequence[int], max_ngram: int) -> int | None:
    """Gives the position after the latest earlier place of the longest ending; None where no ending repeats.

    Args:
        token_ids: All tokens, of which the last ones are the ending.
        max_ngram: Tokens of the longest ending that counts.
    """
    tokens = np.asarray(token_ids)
    num_tokens = len(tokens)
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])  # where the last token stood before
    if not len(ends):
        return None
    for length in range(2, min(max_ngram, num_tokens - 1) + 1):
        longer = ends[ends >= length - 1]
        longer = longer[tokens[longer - length + 1] == tokens[num_tokens - length]]
        if not len(longer):
            break
        ends = longer
    return int(ends[-1]) + 1

"""How likely was a token, and which were likelier?"""

from dataclasses import dataclass

import numpy as np

from refinfer.errors import TokenIdError
from refinfer.sampling.logits import below_highest, highest_token_id, top_token_ids
from refinfer.shapes import LogitsRow, ProcessedLogits


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token's log-probability under the model's own distribution.

    Attributes:
        logprob: Natural logarithm of the probability.
        rank: 1 plus the number of tokens with a higher logit; equals share a rank, where vLLM gives them the last.
    """

    logprob: float
    rank: int


def log_softmax(logits: LogitsRow) -> ProcessedLogits:
    """Gives the natural logarithm of each token's probability, in float64.

    Raises:
        InvariantError: A logit is NaN, or all are minus infinity.
    """
    highest_token_id(logits)
    shifted = below_highest(logits)
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def token_logprobs(logits: LogitsRow, token_id: int, num_logprobs: int) -> dict[int, TokenLogprob]:
    """Gives the log-probability of a token, and those of the likeliest tokens.

    The distribution is the model's own, before any parameter of the request. For a token of a prompt the row is the
    one that the token before it gave, so the first token of a prompt has none.

    Args:
        logits: The model's own logits.
        token_id: The token that was chosen, or that stands in the prompt.
        num_logprobs: How many of the likeliest are wanted, the lowest ids among equals; all where there are fewer.

    Returns:
        By token id: the token itself first, then the likeliest, highest first, without those that are there already.

    Raises:
        InvariantError: A logit is NaN, or all are minus infinity.
        TokenIdError: The token lies outside the vocabulary.
    """
    if not 0 <= token_id < len(logits):
        message = f"token id {token_id} has no logit; the token ids of this row end at {len(logits) - 1}"
        raise TokenIdError(message, token_id=token_id, vocab_size=len(logits))
    logprobs = log_softmax(logits)
    token_ids = dict.fromkeys([token_id, *top_token_ids(logits, num_logprobs).tolist()])
    return {
        listed: TokenLogprob(logprob=float(logprobs[listed]), rank=1 + int(np.count_nonzero(logits > logits[listed])))
        for listed in token_ids
    }

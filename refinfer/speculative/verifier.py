"""Which guessed tokens stay, and which token comes after them? What comes out has the law of the model alone.

At temperature 0, and for a guess that is certain, the model's own next token is chosen as it always is, and the
guess stays if it is that token. The tokens are those that come without a guess, a seeded draw included.

A guess that was drawn stays with probability min(1, p/q), where p is the model's probability of it and q the one that
it was drawn with; else a token is drawn from what p has more than q, max(0, p - q), scaled to 1. For a guess that is
certain q is 1, and both rules have one law.
Leviathan et al., Fast Inference from Transformers via Speculative Decoding (2023), section 2.3;
Chen et al., Accelerating Large Language Model Decoding with Speculative Sampling (2023), algorithm 2.
"""

from collections.abc import Sequence

import numpy as np

from refinfer.errors import InvariantError, NoTokenLeftError
from refinfer.sampling import SampleContext, sample_token
from refinfer.sampling.logits import probabilities
from refinfer.sampling.sampler import draw_uniform, inverse_cdf_token_id
from refinfer.shapes import LogitsRow, Probabilities
from refinfer.speculative.proposer import Draft

DRAFT_DRAW, ACCEPTANCE_DRAW, RESIDUAL_DRAW = 1, 2, 3
"""Which random number of an output position each draw takes; 0 is that of a token without a guess."""


def verify(logits: Sequence[LogitsRow], draft: Draft, context: SampleContext) -> list[int]:
    """Gives the tokens that a step emits: the guessed ones that stay, and one more.

    Where no token can be chosen after guesses that stayed, these are emitted by themselves: the next step, which
    finds the same logits without a guess, raises.

    Args:
        logits: The model's own logits for the first guessed token, for each after it, and for the token after all.
        draft: What was guessed.
        context: What the first of the tokens is drawn from.

    Raises:
        InvariantError: A logit of the first row is NaN, or all are minus infinity.
        NoTokenLeftError: Every token that the first row gives a chance is masked by `min_tokens`.
    """
    token_ids: list[int] = []
    for place, row in enumerate(logits):
        try:
            token_ids.append(_next_token(row, draft, place, context.after(token_ids)))
        except (InvariantError, NoTokenLeftError):
            if not place:
                raise
            break
        if place == len(draft.token_ids) or token_ids[-1] != draft.token_ids[place]:
            break
    return token_ids


def _next_token(logits: LogitsRow, draft: Draft, place: int, context: SampleContext) -> int:
    """Chooses the token that comes out at one place of a draft, or after it."""
    if place == len(draft.token_ids) or draft.probabilities is None:
        return sample_token(logits, context)
    target = probabilities(logits, context)
    return _accept_or_replace(target, draft.probabilities[place], draft.token_ids[place], context)


def acceptance(target: Probabilities, drafted: Probabilities, token_id: int) -> float:
    """Gives the probability with which a token that was drawn from one distribution stays for the other."""
    return min(1.0, float(target[token_id]) / float(drafted[token_id]))


def residual(target: Probabilities, drafted: Probabilities) -> Probabilities:
    """Gives what a distribution has more than the one that was drawn from, not scaled to 1."""
    return np.asarray(np.maximum(target - drafted, 0.0))


def _accept_or_replace(target: Probabilities, drafted: Probabilities, guess: int, context: SampleContext) -> int:
    position = len(context.output_token_ids)
    if draw_uniform(context.seed, context.sample_index, position, ACCEPTANCE_DRAW) < acceptance(target, drafted, guess):
        return guess
    uniform = draw_uniform(context.seed, context.sample_index, position, RESIDUAL_DRAW)
    left = residual(target, drafted)
    # Distributions that differ by rounding only can reject a guess and leave nothing, of which token 0 would be drawn.
    return inverse_cdf_token_id(left if left.any() else target, uniform)

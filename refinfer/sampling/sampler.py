"""Which token comes next?"""

import secrets

import numpy as np
from numpy.random import Philox

from refinfer.sampling.context import SampleContext
from refinfer.sampling.logits import highest_token_id, probabilities, process_logits
from refinfer.sampling.params import SamplingParams
from refinfer.shapes import LogitsRow, Probabilities


def sample_token(logits: LogitsRow, context: SampleContext) -> int:
    """Chooses the next token of one answer: the likeliest at temperature 0, else one that is drawn.

    Changes nothing, and depends on nothing but its arguments.

    Args:
        logits: The model's own logits for the token to come.
        context: The request's parameters, seed and tokens.

    Raises:
        InvariantError: A logit is NaN, or all are minus infinity.
        NoTokenLeftError: Every token that the model gives a chance is masked by `min_tokens`.
    """
    params = context.params
    if params.is_plain_greedy:
        return highest_token_id(logits)
    if params.is_greedy:
        return highest_token_id(process_logits(logits, context))
    uniform = draw_uniform(context.seed, context.sample_index, len(context.output_token_ids))
    return inverse_cdf_token_id(probabilities(logits, context), uniform)


def draw_uniform(seed: int, sample_index: int, position: int, draw: int = 0) -> float:
    """Draws a random number of an output token, at least 0 and below 1, a multiple of 2**-53.

    It is counted, not produced in turn: Philox (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011),
    keyed by seed and answer, with the position as the highest word of its counter, gives the same number whatever was
    drawn before. The lowest word counts further numbers of the same position.

    Args:
        seed: 0 to 2**64 - 1.
        sample_index: Which answer, counted from 0.
        position: The place of the token in the output, counted from 0.
        draw: Which of the position's numbers; the token itself takes 0.
    """
    # Plain lists would pass through floats, which merge large seeds.
    key = np.array([seed, sample_index], dtype=np.uint64)
    counter = np.array([draw, 0, 0, position], dtype=np.uint64)
    # Raw bits, since numpy keeps the stream of a bit generator from release to release, but not what it makes of it.
    return (int(Philox(key=key, counter=counter).random_raw()) >> 11) * 2.0**-53


def inverse_cdf_token_id(probabilities: Probabilities, uniform: float) -> int:
    """Gives the token in whose share of the cumulative distribution, over ascending ids, a number falls.

    A token of probability 0 has no share, so it is never given, wherever rounding puts the end of the distribution.

    Args:
        probabilities: At least 0 each; their sum is taken as it comes out.
        uniform: At least 0 and below 1.
    """
    cumulative = probabilities.cumsum()
    total = cumulative[-1]
    token_id = cumulative.searchsorted(uniform * total, side="right")
    last_token_id = cumulative.searchsorted(total, side="left")
    return int(min(token_id, last_token_id))


def effective_seed(params: SamplingParams) -> int:
    """Gives the seed of the parameters, or a fresh one from the operating system where they have none."""
    return secrets.randbits(64) if params.seed is None else params.seed

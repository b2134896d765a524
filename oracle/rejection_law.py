"""Do tokens that were guessed, and those that replace them, have the law of the model alone? In closed form."""

import numpy as np

from oracle.errors import LogitsMismatch
from refinfer.shapes import Probabilities
from refinfer.speculative import verifier

LAW_BOUND = 1e-12
"""Sums of a few float64 products, each of which is right to some 1e-16."""

SOURCES_OF_LAW = ("refinfer/speculative/verifier.py",)
"""Where everything stands that the law asks, so that whatever breaks it sits there."""

_MAX_VOCAB_SIZE = 8


def law_after_verification(target: Probabilities, drafted: Probabilities) -> Probabilities:
    """Gives the law of the token that comes out where one was drawn from another distribution and then verified.

    The sum over all guesses of their probability, times what becomes of each: it stays, or the residual replaces it.
    """
    law = np.zeros(len(target))
    for token_id in np.flatnonzero(drafted):
        stays = verifier.acceptance(target, drafted, int(token_id))
        law[token_id] += drafted[token_id] * stays
        if stays < 1.0:
            residual = verifier.residual(target, drafted)
            law += drafted[token_id] * (1.0 - stays) * residual / residual.sum()
    return law


def check_rejection_law(num_cases: int, seed: int) -> int:
    """Holds the law of verified tokens to the target's, for random pairs of distributions, some with zeros.

    Returns:
        How many pairs had a guess that may be rejected.

    Raises:
        LogitsMismatch: The law is another one.
    """
    random = np.random.default_rng(seed)
    num_rejecting = 0
    for number in range(num_cases):
        vocab_size = int(random.integers(2, _MAX_VOCAB_SIZE + 1))
        target, drafted = _distribution(random, vocab_size), _distribution(random, vocab_size)
        num_rejecting += bool((target < drafted).any())
        difference = float(np.abs(law_after_verification(target, drafted) - target).max())
        if not difference <= LAW_BOUND:
            message = (
                f"pair {number}: the law of the tokens is {difference:.3g} off, over {LAW_BOUND:g}; "
                f"model {target.tolist()}, guesses {drafted.tolist()}"
            )
            raise LogitsMismatch(message, difference=difference)
    return num_rejecting


def _distribution(random: np.random.Generator, vocab_size: int) -> Probabilities:
    """Draws a distribution; every second one leaves tokens out, as top_k does."""
    weights = random.exponential(size=vocab_size)
    if random.integers(2):
        weights[random.permutation(vocab_size)[: random.integers(0, vocab_size)]] = 0.0
    return np.asarray(weights / weights.sum())

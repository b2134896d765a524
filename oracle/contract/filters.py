"""Which tokens may be drawn? With temperature, `top_k`, `top_p` and `min_p`, each read both ways that rounding allows.

What rounding may let in may come; what it may keep out need not. Between the two lie tokens of which nothing follows.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from oracle.contract.processing import Place, Scores

Kept = Bool[np.ndarray, " vocab"]
Ranks = Int[np.ndarray, " vocab"]

MASS_TOLERANCE = 1e-4
"""What rounding does to sums of probabilities, and more, beside what it does to each of them."""


def kept_tokens(scores: Scores, place: Place, bound: float) -> Kept:
    """Tells for each token whether it may be drawn; what rounding may let in may.

    Args:
        scores: After the steps before temperature.
        place: Where the token is chosen.
        bound: How far rounding may move a score.
    """
    return _filtered(scores, place, bound, is_certain=False)


def certain_tokens(scores: Scores, place: Place, bound: float) -> Kept:
    """Tells for each token whether it may be drawn whatever rounding does; see `kept_tokens`."""
    return _filtered(scores, place, bound, is_certain=True)


def _filtered(scores: Scores, place: Place, bound: float, *, is_certain: bool) -> Kept:
    kept: Kept = np.isfinite(scores)
    if not kept.any():
        return kept
    if float(place.value("temperature")) == 0.0:
        best: Kept = kept & _among_likeliest(scores, 1, bound, is_certain=is_certain)
        return best
    for name in place.filters:
        if not kept.any():
            break  # too many are tied for any of them to be certain
        temperature = place.temperature_before(name)
        left = np.where(kept, scores, -np.inf) / temperature
        kept &= _FILTERS[name](left, place.value(name), bound / temperature, is_certain=is_certain)
    return kept


def _num_before(scores: Scores, bound: float, *, is_certain: bool) -> Ranks:
    """Counts for each token the others that stand before it: as few as rounding allows, or as many."""
    ascending = np.sort(scores)
    if is_certain:
        most: Ranks = len(scores) - np.searchsorted(ascending, scores - 2 * bound, side="left") - 1
        return most
    fewest: Ranks = len(scores) - np.searchsorted(ascending, scores + 2 * bound, side="right")
    return fewest


def _among_likeliest(scores: Scores, top_k: int, bound: float, *, is_certain: bool) -> Kept:
    if not 0 < top_k < len(scores):
        return np.ones(len(scores), dtype=bool)
    kept: Kept = _num_before(scores, bound, is_certain=is_certain) < top_k
    return kept


def _in_nucleus(scores: Scores, top_p: float, bound: float, *, is_certain: bool) -> Kept:
    """Keeps tokens before which less than `top_p` of the probability stands, and the likeliest in any case."""
    if top_p >= 1.0:
        return np.ones(len(scores), dtype=bool)
    num_before = _num_before(scores, bound, is_certain=is_certain)
    weights = np.exp(scores - scores.max())
    mass = np.concatenate(([0.0], np.cumsum(np.sort(weights)[::-1]))) / weights.sum()
    # A token that may fall behind others stands among the likeliest that are counted, so that its own share goes off.
    mass = mass[num_before + 1] - weights / weights.sum() if is_certain else mass[num_before]
    mass = np.clip(mass, 0.0, 1.0)
    # Rounding may make the odds of what stands before a token larger or smaller by this factor.
    odds = np.exp(2 * bound if is_certain else -2 * bound)
    mass = mass * odds / (mass * odds + 1.0 - mass)
    slack = -MASS_TOLERANCE if is_certain else MASS_TOLERANCE
    kept: Kept = (mass < top_p + slack) | (num_before == 0)
    return kept


def _likely_enough(scores: Scores, min_p: float, bound: float, *, is_certain: bool) -> Kept:
    if min_p <= 0.0:
        return np.ones(len(scores), dtype=bool)
    slack = 2 * bound if is_certain else -2 * bound
    is_first = _num_before(scores, bound, is_certain=is_certain) == 0
    kept: Kept = (scores >= scores.max() + np.log(min_p) + slack) | is_first
    return kept


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "top_k": _among_likeliest,
    "top_p": _in_nucleus,
    "min_p": _likely_enough,
}

"""Which scores are due, between what two values, and up to what rounding?"""

from dataclasses import dataclass

import numpy as np

from oracle.contract.filters import Kept
from oracle.contract.processing import Scores

AS_GOOD_AS_NEVER = -1e4
"""What lies below stands for minus infinity in engines that mask with a large number."""

ScoreFault = tuple[str, float, float]
"""What is wrong with a score, how far it is off, and what rounding explains."""


@dataclass(frozen=True)
class ExpectedScores:
    """Scores of every token at one place.

    They lie between two values where rounding decides which tokens share the probability.

    Attributes:
        lowest: Each token's, where all tokens that may be drawn share it.
        highest: Each token's, where only those share it that may be drawn for certain.
        is_certain: Whether a token has a finite score for certain.
        bound: How far rounding may move a score.
    """

    lowest: Scores
    highest: Scores
    is_certain: Kept
    bound: float

    def fault_of(self, what: str, token_id: int, value: float) -> ScoreFault | None:
        """Finds a score that is too far from what is due."""
        due = float(np.clip(value, self.lowest[token_id], self.highest[token_id]))
        gap = 0.0 if value == due else abs(float(value) - due)
        if gap <= self.bound:
            return None
        return f"{what} is {value:.7g}, and {due:.7g} was due; rounding explains {self.bound:.3g}", gap, self.bound

    def may_be_absent(self, token_id: int, value: float) -> bool:
        """Tells whether a listed score stands for a token that cannot come, and rightly so."""
        return value <= AS_GOOD_AS_NEVER and not self.is_certain[token_id]


def exactly(scores: Scores, bound: float) -> ExpectedScores:
    """Expects the same scores whatever rounding does, up to a bound."""
    return ExpectedScores(scores, scores, np.isfinite(scores), bound)


def shared_by(scores: Scores, may: Kept, must: Kept, bound: float) -> ExpectedScores:
    """Expects log-probabilities that drawn tokens share, where for some of them rounding decides whether they do.

    Args:
        scores: Unnormalised, temperature included.
        may: The tokens that may be drawn.
        must: Those of them that may be drawn for certain.
        bound: How far rounding may move a log-probability.
    """
    may_sum, must_sum = (np.logaddexp.reduce(np.where(kept, scores, -np.inf)) for kept in (may, must))
    lowest = np.where(may, scores - may_sum, -np.inf)
    with np.errstate(invalid="ignore"):  # of what cannot be drawn
        alone = scores - np.where(must, must_sum, np.logaddexp(must_sum, scores))
    highest = np.where(may, alone, -np.inf)
    return ExpectedScores(lowest, highest, must, bound)


def log_softmax(row: Scores) -> Scores:
    """Gives log-probabilities of logits."""
    shifted = row - row.max()
    result: Scores = shifted - np.log(np.exp(shifted).sum())
    return result

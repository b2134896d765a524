"""Compares logits and tokens, and tells wrong from rounded from tied."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Float, Float64

from oracle.errors import LogitsMismatch, TokenMismatch

LogitRows = Float64[np.ndarray, "rows vocab"]
"""Logits widened to float64, so that differences are exact."""

OtherRows = Float64[np.ndarray, "other_rows other_vocab"]
"""The other side's; that the shapes agree is for the comparison to find out."""


class TokenVerdict(StrEnum):
    """What one emitted token is, held against the referee's logits."""

    EQUAL = "equal"
    EXACT_TIE = "exact tie"
    NEAR_TIE = "near tie"


@dataclass(frozen=True)
class TokenJudgement:
    """What came out of judging one request's tokens.

    Attributes:
        num_positions: Tokens judged.
        num_exact_ties: Positions where the referee has several best tokens with equal logits.
        num_near_ties: Positions where another token than the referee's was emitted, within the bound.
        smallest_margin: Smallest gap between the referee's best and second-best logit.
    """

    num_positions: int
    num_exact_ties: int
    num_near_ties: int
    smallest_margin: float


def as_rows(logits: Float[torch.Tensor, "rows vocab"] | Float[np.ndarray, "rows vocab"]) -> LogitRows:
    """Widens logits to float64 without changing a value."""
    if isinstance(logits, torch.Tensor):
        return logits.detach().to(torch.float64).numpy()
    return logits.astype(np.float64)


def compare_logits(subject: LogitRows, expected: OtherRows, bound: float, what: str) -> float:
    """Gives the largest difference, which must not pass the bound.

    Args:
        subject: The logits in the dock.
        expected: What they are held against.
        bound: Largest permitted difference; 0 asks for the same values.
        what: What is compared, for the message.

    Raises:
        LogitsMismatch: A difference is larger, a value of either side is not finite, the shapes differ,
            or there is nothing that could differ.
    """
    if subject.shape != expected.shape or not subject.size:
        message = f"{what}: shape {subject.shape} instead of {expected.shape}, or nothing to compare"
        raise LogitsMismatch(message, subject=subject.shape, expected=expected.shape)
    for rows, side in ((subject, ""), (expected, " of what is expected")):
        row = _first_row_not_finite(rows)
        if row is not None:
            message = f"{what}: row {row}{side} holds values that are not finite"
            raise LogitsMismatch(message, row=row)
    difference = np.abs(subject - expected)
    largest = float(difference.max())
    if not largest <= bound:
        first = int((~(difference.max(axis=1) <= bound)).argmax())
        token_id = int(difference[first].argmax())
        message = (
            f"{what}: first divergence in row {first} of {len(subject)}, token id {token_id}: "
            f"{float(subject[first, token_id])!r} instead of {float(expected[first, token_id])!r}; "
            f"the largest difference {largest:.3g} is over the bound {bound:.3g}"
        )
        raise LogitsMismatch(message, row=first, token_id=token_id, largest=largest, bound=bound)
    return largest


def judge_tokens(
    token_ids: tuple[int, ...], own: LogitRows, referee: OtherRows, bound: float, what: str
) -> TokenJudgement:
    """Judges greedy tokens against a referee that was given the same prefix at every position.

    Each token must be the lowest id among the best of the subject's *own* logits: no tie excuses picking
    a token that the subject itself scores lower. If it is not the referee's choice as well, the referee's
    gap between the two must lie within twice the bound, as both logits may be off by the bound.

    Args:
        token_ids: The emitted tokens.
        own: The subject's logits, one row for each token.
        referee: The referee's logits, likewise.
        bound: Largest permitted difference of one logit.
        what: What is judged, for the message.

    Raises:
        TokenMismatch: A token is wrong: it follows from no tie. Or there is another number of tokens than
            of rows, or a row of either side is not finite, so that nothing follows from it.
    """
    _check_judgeable(token_ids, own, referee, what)
    num_exact_ties = num_near_ties = 0
    smallest_margin = float("inf")
    for row, token_id in enumerate(token_ids):
        own_choice = int(own[row].argmax())
        choice = int(referee[row].argmax())
        is_in_vocabulary = 0 <= token_id < referee.shape[1]
        gap = float(referee[row, choice] - referee[row, token_id]) if is_in_vocabulary else float("inf")
        if token_id != own_choice or not gap <= 2 * bound:
            message = (
                f"{what}: first divergence at output position {row}: token {token_id} instead of {choice}; "
                f"the referee's gap between them is {gap:.3g}, a near tie would lie within {2 * bound:.3g}, "
                f"and the subject's own best is {own_choice}"
            )
            raise TokenMismatch(message, row=row, token_id=token_id, expected=choice, gap=gap, bound=bound)
        verdict = verdict_of(token_id, choice, referee[row])
        num_exact_ties += verdict is TokenVerdict.EXACT_TIE
        num_near_ties += verdict is TokenVerdict.NEAR_TIE
        smallest_margin = min(smallest_margin, _margin(referee[row]))
    return TokenJudgement(len(token_ids), num_exact_ties, num_near_ties, smallest_margin)


def verdict_of(token_id: int, referee_choice: int, referee_row: Float64[np.ndarray, " vocab"]) -> TokenVerdict:
    """Tells what a token is that a bound has let pass."""
    if token_id != referee_choice:
        return TokenVerdict.NEAR_TIE
    num_best = int((referee_row == referee_row[referee_choice]).sum())
    return TokenVerdict.EXACT_TIE if num_best > 1 else TokenVerdict.EQUAL


def _check_judgeable(token_ids: tuple[int, ...], own: LogitRows, referee: OtherRows, what: str) -> None:
    if own.shape != referee.shape or len(token_ids) != len(own) or not own.size:
        message = (
            f"{what}: {len(token_ids)} tokens come with {own.shape} rows and columns of logits; "
            f"the referee has {referee.shape}"
        )
        raise TokenMismatch(message, num_tokens=len(token_ids), own=own.shape, referee=referee.shape)
    for rows, side in ((own, "the subject's"), (referee, "the referee's")):
        row = _first_row_not_finite(rows)
        if row is not None:
            message = f"{what}: {side} row {row} holds values that are not finite, so no token follows from it"
            raise TokenMismatch(message, row=row)


def _first_row_not_finite(rows: LogitRows) -> int | None:
    is_broken = ~np.isfinite(rows).all(axis=1)
    return int(is_broken.argmax()) if is_broken.any() else None


def _margin(row: Float64[np.ndarray, " vocab"]) -> float:
    """Gives the gap between the best and the second-best logit."""
    if len(row) == 1:
        return float("inf")
    second, best = np.partition(row, -2)[-2:]
    return float(best - second)

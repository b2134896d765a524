"""What engines are usually held to, so that it can be seen how much of the same faults that would show."""

from dataclasses import dataclass

import numpy as np

from oracle.compare import LogitRows, OtherRows
from oracle.matrix.kills import RULES

_TOP = 5
_BOUND_BY_RULE = {"1e-3": 1e-3, "1e-4": 1e-4}


@dataclass(frozen=True)
class Answer:
    """One answer, and the reference's logits after the same tokens.

    Attributes:
        token_ids: The output tokens.
        logits: The row that each was picked from.
        reference: The reference's rows.
        num_due: How many tokens should have come, if these are right; None where something else than greedy choice
            had a say, so that they cannot be held to the reference's.
        what: How messages name it.
    """

    token_ids: tuple[int, ...]
    logits: LogitRows
    reference: OtherRows
    num_due: int | None
    what: str


def check_rule(rule: str, answer: Answer) -> str | None:
    """Gives what a rule says against an answer; None where it has nothing to say, or is none of these rules.

    Args:
        rule: One of `RULES`.
        answer: What came.
    """
    if rule not in RULES or not answer.token_ids:
        return None
    bound = _BOUND_BY_RULE.get(rule)
    said = _of_tokens(rule, answer) if bound is None else _of_logits(bound, answer)
    return None if said is None else f"{answer.what}: {said} ({rule})"


def _of_logits(bound: float, answer: Answer) -> str | None:
    own, reference = answer.logits, answer.reference
    if own.shape != reference.shape:
        return f"logits of shape {own.shape} instead of {reference.shape}"
    difference = float(np.abs(own - reference).max())
    return None if difference <= bound else f"a logit is {difference:.3g} off"


def _of_tokens(rule: str, answer: Answer) -> str | None:
    if answer.num_due is None:
        return None
    if rule == "greedy equality" and len(answer.token_ids) != answer.num_due:
        return f"{len(answer.token_ids)} tokens instead of {answer.num_due}"
    places = np.arange(len(answer.token_ids))
    is_better = answer.reference > answer.reference[places, list(answer.token_ids)][:, None]
    num_better = is_better.sum(axis=1)
    is_wrong = num_better > (_TOP - 1 if rule == "top-5" else 0)
    if not is_wrong.any():
        return None
    place = int(is_wrong.argmax())
    return f"token {answer.token_ids[place]} at {place} has {num_better[place]} better ones in the reference"

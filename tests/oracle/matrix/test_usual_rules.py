"""Each rule sees what it is about, and nothing less: what passes it is what engines ship."""

import numpy as np
import pytest

from oracle.matrix.kills import RULES
from oracle.matrix.usual_rules import Answer, check_rule

REFERENCE = np.array([[0.0, 5.0, 4.0, 3.0, 2.0, 1.0], [6.0, 1.0, 2.0, 3.0, 4.0, 5.0]])


def seen(token_ids, logits=REFERENCE, num_tokens=2):
    """The rules that say something."""
    answer = Answer(token_ids, logits, REFERENCE, num_tokens, "request 0")
    return [rule for rule in RULES if check_rule(rule, answer) is not None]


def test_right_answer_passes_every_rule():
    assert seen((1, 0)) == []


@pytest.mark.parametrize(
    ("token_ids", "rules"),
    [((2, 0), ["greedy equality"]), ((5, 0), ["greedy equality"]), ((0, 0), ["top-5", "greedy equality"])],
    ids=["second best", "fifth best", "sixth best"],
)
def test_rules_of_tokens_ask_how_many_are_better(token_ids, rules):
    assert seen(token_ids) == rules


def test_only_equality_asks_how_many_tokens_came():
    assert seen((1, 0), num_tokens=3) == ["greedy equality"]


def test_tokens_that_something_else_decided_are_not_held_to_the_reference():
    assert seen((0, 1), num_tokens=None) == []


@pytest.mark.parametrize(("error", "rules"), [(5e-5, []), (5e-4, ["1e-4"]), (5e-3, ["1e-3", "1e-4"])])
def test_rules_of_logits_ask_for_the_largest_difference(error, rules):
    logits = REFERENCE.copy()
    logits[1, 3] += error
    assert seen((1, 0), logits) == rules


def test_logits_that_are_no_numbers_or_too_few_are_seen():
    assert seen((1, 0), np.full_like(REFERENCE, np.nan)) == ["1e-3", "1e-4"]
    assert seen((1, 0), REFERENCE[:1]) == ["1e-3", "1e-4"]

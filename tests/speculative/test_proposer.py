"""A guess, and the first tokens of one."""

import numpy as np
import pytest

from refinfer.speculative import Draft


@pytest.mark.parametrize(("num_tokens", "num_left"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_first_keeps_tokens_with_their_distributions(num_tokens, num_left):
    shares = tuple(np.eye(3))
    first = Draft((2, 0, 1), shares).first(num_tokens)
    assert first.token_ids == (2, 0, 1)[:num_left]
    assert first.probabilities is not None
    assert [id(own) for own in first.probabilities] == [id(own) for own in shares[:num_left]]


def test_first_of_a_certain_guess_is_certain():
    assert Draft((2, 0, 1)).first(2) == Draft((2, 0), None)


def test_draft_without_tokens_is_certain():
    assert Draft() == Draft((), None)

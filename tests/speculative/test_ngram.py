"""Looking up: against loops in plain Python, and each rule by itself."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refinfer.errors import ConfigError
from refinfer.speculative import Draft, NgramProposer
from refinfer.speculative.ngram import MAX_NGRAM, find_follower


def plain_guess(token_ids, num_tokens, max_ngram):
    """The same by loops: the longest ending first, its latest place first, and the text grows by what is guessed."""
    for length in range(max_ngram, 0, -1):
        for start in range(len(token_ids) - length - 1, -1, -1):
            if token_ids[start : start + length] == token_ids[-length:]:
                text = list(token_ids)
                for place in range(num_tokens):
                    text.append(text[start + length + place])
                return tuple(text[len(token_ids) :])
    return ()


@given(
    token_ids=st.lists(st.integers(0, 3), min_size=1, max_size=24),
    num_tokens=st.integers(1, 9),
    max_ngram=st.integers(1, 5),
)
@example(token_ids=[1], num_tokens=1, max_ngram=1)
@example(token_ids=[1, 1], num_tokens=3, max_ngram=3)
@example(token_ids=[1, 1, 1], num_tokens=3, max_ngram=2)
@example(token_ids=[1, 2, 3, 9, 1, 2, 3], num_tokens=6, max_ngram=3)
@example(token_ids=[1, 2, 4, 3, 2, 5, 1, 2], num_tokens=3, max_ngram=3)
def test_ngram_guess_equals_the_plain_loops(request_of, token_ids, num_tokens, max_ngram):
    (draft,) = NgramProposer(max_ngram).propose([request_of(token_ids, num_tokens)])
    assert draft == Draft(plain_guess(token_ids, num_tokens, max_ngram))


@pytest.mark.parametrize(
    ("token_ids", "guess"),
    [
        ([1, 2, 3, 4, 9, 5, 3, 4], (9, 5, 3, 4)),
        ([7, 1, 2, 8, 3, 2, 6, 1, 2], (8, 3, 2, 6)),
        ([5, 1, 6, 1, 7, 1], (7, 1, 7, 1)),
        ([1, 2, 3, 1, 2, 3], (1, 2, 3, 1)),
        ([4, 4], (4, 4, 4, 4)),
        ([0, 1, 2, 3, 4, 6, 1, 2, 3, 5, 0, 1, 2, 3], (5, 0, 1, 2)),
    ],
    ids=[
        "two tokens stood there before",
        "the longer ending goes before the later place",
        "of equal endings the latest",
        "a period runs into the guess",
        "one token over and over",
        "no more than three tokens count, so the later place",
    ],
)
def test_ngram_guesses_what_followed(request_of, token_ids, guess):
    assert NgramProposer().propose([request_of(token_ids, 4)]) == [Draft(guess)]


@pytest.mark.parametrize("token_ids", [[1], [1, 2], [1, 1, 2], [1, 2, 3, 4, 5]], ids=str)
def test_ending_that_never_stood_there_before_gives_nothing(request_of, token_ids):
    assert find_follower(token_ids, MAX_NGRAM) is None
    assert NgramProposer().propose([request_of(token_ids)]) == [Draft()]


def test_each_request_is_guessed_for_from_its_own_tokens(request_of):
    requests = [request_of([1, 2, 1], 1), request_of([3], 4), request_of([5, 6, 5], 3)]
    assert NgramProposer().propose(requests) == [Draft((2,)), Draft(), Draft((6, 5, 6))]
    assert NgramProposer().propose([]) == []


def test_guess_leaves_the_tokens_of_the_request_alone(request_of):
    request = request_of([1, 2, 1], 5)
    NgramProposer().propose([request])
    assert request.token_ids == [1, 2, 1]


def test_forget_does_not_change_what_is_guessed(request_of):
    proposer = NgramProposer()
    before = proposer.propose([request_of([1, 2, 1])])
    proposer.forget("a")
    proposer.forget("never seen")
    assert proposer.propose([request_of([1, 2, 1])]) == before == [Draft((2, 1, 2, 1))]


@pytest.mark.parametrize("max_ngram", [0, -1])
def test_ngram_proposer_refuses_to_look_up_nothing(max_ngram):
    with pytest.raises(ConfigError, match=f"an n-gram of {max_ngram} tokens cannot be looked up; take at least 1") as c:
        NgramProposer(max_ngram)
    assert c.value.max_ngram == max_ngram

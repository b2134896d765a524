"""A script of guesses: right, wrong, an end, or nothing, by the place in the output."""

import pytest

from oracle.scripted_proposer import ScriptedProposer
from refinfer.engine.engine import make_states
from refinfer.sampling import SampleContext, SamplingParams
from refinfer.scheduler import Request
from refinfer.speculative import Draft, DraftRequest, Proposer

KNOWN = {("a", 0): (4, 9, 2, 7), ("a", 1): (5, 5)}
END, VOCAB_SIZE = 1, 10


@pytest.fixture
def draft_of():
    """What a script guesses of one sample of which so much has come out."""

    def guess(guesses, num_output_tokens, num_tokens, *, sample_index=0):
        states = make_states(Request("a", None, (3, 3), SamplingParams(n=2)))
        state = states[sample_index]
        for token_id in (KNOWN["a", sample_index] + (0,) * 9)[:num_output_tokens]:
            state.append(token_id)
        context = SampleContext(SamplingParams(), 0, 0, (3, 3), state.output_token_ids, frozenset())
        proposer = ScriptedProposer(KNOWN, guesses, END, VOCAB_SIZE)
        (draft,) = proposer.propose([DraftRequest(state, state.token_ids, num_tokens, context)])
        return draft

    return guess


@pytest.mark.parametrize(
    ("guesses", "num_output_tokens", "num_tokens", "token_ids"),
    [
        (("right",), 0, 3, (4, 9, 2)),
        (("right",), 2, 2, (2, 7)),
        (("wrong",), 0, 3, (5, 0, 3)),
        (("end",), 1, 2, (1, 1)),
        (("nothing",), 0, 3, ()),
        (("right", "wrong"), 0, 4, (4, 0, 2, 8)),
        (("right", "wrong"), 1, 2, (0, 2)),
        (("right", "right", "nothing"), 0, 4, (4, 9)),
        (("right", "right", "nothing"), 2, 4, ()),
        (("right", "end", "wrong"), 0, 3, (4, 1, 3)),
        (("right",), 3, 3, (7, 0, 0)),
        (("wrong",), 3, 3, (8, 1, 1)),
    ],
)
def test_script_guesses_by_the_place_in_the_output(draft_of, guesses, num_output_tokens, num_tokens, token_ids):
    """Over and over; nothing comes behind "nothing"; past the last known token it goes on with token 0."""
    assert draft_of(guesses, num_output_tokens, num_tokens) == Draft(token_ids)


def test_script_knows_each_sample_by_itself(draft_of):
    assert draft_of(("right",), 1, 3, sample_index=1) == Draft((5, 0, 0))


def test_wrong_guess_is_never_the_right_one(draft_of):
    right, wrong = (draft_of((kind,), 0, 4).token_ids for kind in ("right", "wrong"))
    assert all(one != other for one, other in zip(right, wrong, strict=True))
    assert max(wrong) < VOCAB_SIZE


def test_script_is_a_proposer_that_keeps_nothing():
    proposer = ScriptedProposer(KNOWN, ("right",), END, VOCAB_SIZE)
    assert isinstance(proposer, Proposer)
    assert proposer.propose([]) == []
    before = dict(vars(proposer))
    proposer.forget("never seen")
    assert vars(proposer) == before

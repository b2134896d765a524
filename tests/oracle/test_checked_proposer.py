"""Guesses of a draft model pass unchanged, unless without a cache it guesses something else."""

import pytest

from oracle.checked_proposer import CheckedProposer
from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.errors import InvariantViolation
from oracle.faults import FAULTS
from refinfer import load_model
from refinfer.engine.engine import make_states
from refinfer.sampling import SampleContext, SamplingParams
from refinfer.scheduler import Request
from refinfer.speculative import Draft, DraftModelProposer, DraftRequest, Proposer

SPEC = CheckpointSpec(hidden_size=16, intermediate_size=24, head_dim=8, vocab_size=29, num_layers=1)
GREEDY, SEEDED = SamplingParams(), SamplingParams(temperature=1.0, seed=5)
TOKENS = (3, 1, 4, 1, 5)


class Stub(DraftModelProposer):
    """Guesses what it is told, has run as many tokens as it is told, and keeps what it was told to forget."""

    def __init__(self, *drafts, num_held_tokens=0):
        self.drafts = [Draft(token_ids) for token_ids in drafts]
        self.num_held = num_held_tokens
        self.forgotten = []

    def num_held_tokens(self, key):
        del key
        return self.num_held

    def propose(self, requests):
        assert len(requests) == len(self.drafts)
        return self.drafts

    def forget(self, key):
        self.forgotten.append(key)


@pytest.fixture(scope="module")
def model():
    return load_model(cached_checkpoint(SPEC))


@pytest.fixture(scope="module")
def draft_model_of(model):
    """Makes a draft model with a cache of its own."""
    return lambda: DraftModelProposer(model, num_blocks=16, block_size=2, max_num_batched_tokens=64)


def request_of(params=GREEDY, token_ids=TOKENS, key="a", num_tokens=4):
    context = SampleContext(params, params.seed or 0, 0, token_ids[:2], list(token_ids[2:]), frozenset())
    return DraftRequest(key, list(token_ids), num_tokens, context)


@pytest.fixture(scope="module")
def right(draft_model_of):
    """What the model guesses of a request, which is what it would emit."""
    return lambda *arguments, **values: draft_model_of().propose([request_of(*arguments, **values)])[0].token_ids


PARAMS = pytest.mark.parametrize(
    "params",
    [GREEDY, SEEDED, SamplingParams(repetition_penalty=1.8), SamplingParams(temperature=1.0, seed=5, top_k=3)],
    ids=["greedy", "seeded", "penalty", "top-k"],
)


@PARAMS
def test_right_guesses_pass_unchanged(model, draft_model_of, right, params):
    inner = draft_model_of()
    proposer = CheckedProposer(inner, model)
    assert isinstance(proposer, Proposer)
    assert proposer.propose([request_of(params)]) == [Draft(right(params))]
    longer = (*TOKENS, right(params)[0], 7)  # the first guess stayed, the second did not
    assert proposer.propose([request_of(params, longer)]) == [Draft(right(params, longer))]


@PARAMS
@pytest.mark.parametrize("place", range(4))
def test_wrong_guess_is_named_with_its_place(model, right, params, place):
    token_ids = list(right(params))
    expected, token_ids[place] = token_ids[place], (token_ids[place] + 1) % SPEC.vocab_size
    message = rf"request a: the draft model guesses .* after 5 tokens; .* it guesses {expected} at place {place}$"
    with pytest.raises(InvariantViolation, match=message) as caught:
        CheckedProposer(Stub(tuple(token_ids)), model).propose([request_of(params)])
    assert caught.value.place == place


def test_request_is_named_by_its_id_where_its_state_is_the_key(model, right):
    (state,) = make_states(Request("first", None, TOKENS, GREEDY))
    wrong = (*right()[:3], (right()[3] + 1) % SPEC.vocab_size)
    with pytest.raises(InvariantViolation, match="request first: the draft model guesses"):
        CheckedProposer(Stub(wrong), model).propose([request_of(key=state)])


def test_each_request_is_held_to_its_own_parameters(model, right):
    assert right(GREEDY) != right(SEEDED), "greedy guesses would not do for a seeded request"
    requests = [request_of(GREEDY), request_of(SEEDED, key="b")]
    drafts = right(GREEDY), right(SEEDED)
    assert CheckedProposer(Stub(*drafts), model).propose(requests) == [Draft(own) for own in drafts]
    with pytest.raises(InvariantViolation, match="request b"):
        CheckedProposer(Stub(drafts[0], drafts[0]), model).propose(requests)


def test_value_that_was_never_written_is_seen(model, draft_model_of):
    """No answer shows it: the guesses are fewer, and that is all."""
    proposer = CheckedProposer(draft_model_of(), model)
    with FAULTS["draft_cache_misses_a_token"].planted(), pytest.raises(InvariantViolation, match="at place 0"):
        proposer.propose([request_of()])


@pytest.mark.parametrize("num_guessed", [0, 1, 3])
def test_guess_that_ends_where_the_model_has_a_token_is_seen(model, right, num_guessed):
    """A slot without a value gives no token, which is not to pass for a model that has none to give."""
    stub = Stub(right()[:num_guessed], num_held_tokens=len(TOKENS) + num_guessed)
    with pytest.raises(InvariantViolation, match=f"guesses {right()[num_guessed]} at place {num_guessed}"):
        CheckedProposer(stub, model).propose([request_of()])


@pytest.mark.parametrize("num_guessed", [0, 2])
def test_guess_may_end_where_the_model_has_no_token(model, right, num_guessed, monkeypatch):
    """Without a token to give, a guess that goes on is the wrong one."""
    forward = type(model).forward

    def spoilt(self, token_ids, *arguments):
        logits = forward(self, token_ids, *arguments).clone()
        logits[num_guessed:] = float("nan")
        return logits

    stubs = [Stub(right()[:number], num_held_tokens=99) for number in (num_guessed, 4)]
    monkeypatch.setattr(type(model), "forward", spoilt)
    CheckedProposer(stubs[0], model).propose([request_of()])
    with pytest.raises(InvariantViolation, match=f"guesses nothing at place {num_guessed}"):
        CheckedProposer(stubs[1], model).propose([request_of()])


@pytest.mark.parametrize("num_held_tokens", [0, len(TOKENS) - 1])
def test_sample_that_has_not_run_is_not_checked(model, monkeypatch, num_held_tokens):
    monkeypatch.setattr(type(model), "forward", lambda *_: pytest.fail("an empty guess is made again"))
    stub = Stub((), num_held_tokens=num_held_tokens)
    assert CheckedProposer(stub, model).propose([request_of()]) == [Draft()]
    assert CheckedProposer(Stub(), model).propose([]) == []


def test_draft_model_without_room_or_with_much_to_catch_up_on_passes(model):
    for num_blocks, budget in ((1, 64), (16, 3)):
        inner = DraftModelProposer(model, num_blocks=num_blocks, block_size=2, max_num_batched_tokens=budget)
        assert CheckedProposer(inner, model).propose([request_of()]) == [Draft()]


def test_forget_is_passed_on(model):
    stub = Stub()
    CheckedProposer(stub, model).forget("a")
    assert stub.forgotten == ["a"]

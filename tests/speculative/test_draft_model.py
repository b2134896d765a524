"""A draft model: what it guesses is what it would emit alone, whatever it guessed before, and its blocks come back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.cache import CausalAttentionView
from refinfer.sampling import SamplingParams, probabilities, sample_token
from refinfer.sampling.sampler import draw_uniform, inverse_cdf_token_id
from refinfer.speculative import Draft, DraftModelProposer
from refinfer.speculative.verifier import DRAFT_DRAW

pytestmark = pytest.mark.without_shape_checks

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
CERTAIN_PARAMS = {
    "greedy": SamplingParams(),
    "greedy with penalties": SamplingParams(repetition_penalty=1.5, presence_penalty=1.0),
    "seeded": SamplingParams(temperature=1.0, seed=7),
    "seeded with cuts": SamplingParams(temperature=2.0, seed=7, top_k=9, frequency_penalty=0.5),
}
DRAWN_PARAMS = {
    "plain": SamplingParams(temperature=1.0),
    "all steps": SamplingParams(temperature=1.3, top_k=12, min_p=0.01, presence_penalty=1.5),
}


@pytest.fixture
def new_proposer(model):
    """Makes a proposer with blocks of 4; enough of them unless it is said."""

    def make(num_blocks=24, *, own=model, max_num_batched_tokens=64):
        return DraftModelProposer(
            own, num_blocks=num_blocks, block_size=4, max_num_batched_tokens=max_num_batched_tokens
        )

    return make


def next_logits(model, token_ids):
    """The logits after some tokens that run alone and from nothing."""
    length = len(token_ids)
    logits = model.forward(torch.tensor(token_ids), torch.arange(length), CausalAttentionView([length]), [length - 1])
    return logits[0].numpy()


def emitted(model, request):
    """What the model would emit after the request's tokens, one by one."""
    token_ids: list[int] = []
    for _ in range(request.num_tokens):
        logits = next_logits(model, [*request.token_ids, *token_ids])
        token_ids = [*token_ids, sample_token(logits, request.context.after(token_ids))]
    return tuple(token_ids)


def same(one, other):
    """Whether two drafts are equal, to rounding where distributions go with them."""
    if one.token_ids != other.token_ids or (one.probabilities is None) != (other.probabilities is None):
        return False
    pairs = zip(one.probabilities or (), other.probabilities or (), strict=True)
    return all(np.allclose(own, theirs, rtol=0, atol=1e-12) for own, theirs in pairs)


@pytest.mark.parametrize("params", CERTAIN_PARAMS.values(), ids=CERTAIN_PARAMS)
@pytest.mark.parametrize("num_prompt_tokens", [2, 8])
def test_certain_draft_is_what_the_model_itself_emits(model, new_proposer, request_of, params, num_prompt_tokens):
    request = request_of(PROMPT, 5, params=params, seed=7, num_prompt_tokens=num_prompt_tokens)
    assert new_proposer().propose([request]) == [Draft(emitted(model, request))]


@pytest.mark.parametrize("params", DRAWN_PARAMS.values(), ids=DRAWN_PARAMS)
def test_drawn_draft_hands_out_the_distributions_that_it_was_drawn_from(model, new_proposer, request_of, params):
    """With random numbers of their own, which the verifier does not draw."""
    request = request_of(PROMPT, 5, params=params, seed=11, num_prompt_tokens=6)
    (draft,) = new_proposer().propose([request])
    assert len(draft.token_ids) == len(draft.probabilities or ()) == 5
    for place, drafted in enumerate(draft.probabilities or ()):
        known = list(draft.token_ids[:place])
        logits = next_logits(model, [*PROMPT, *known])
        np.testing.assert_allclose(drafted, probabilities(logits, request.context.after(known)), rtol=0, atol=1e-12)
        uniform = draw_uniform(11, 0, 2 + place, DRAFT_DRAW)
        assert draft.token_ids[place] == inverse_cdf_token_id(drafted, uniform)


def test_draft_that_was_drawn_is_not_what_the_request_would_draw(model, new_proposer, request_of):
    """Else it would always stay where both models are one, and hang together with what replaces it."""
    request = request_of(PROMPT, 12, params=DRAWN_PARAMS["plain"], seed=11)
    (draft,) = new_proposer().propose([request])
    assert draft.token_ids != emitted(model, request)


def test_sample_catches_up_over_several_steps_without_a_guess_until_it_has(model, new_proposer, request_of):
    proposer = new_proposer(max_num_batched_tokens=3)
    request = request_of(PROMPT, 3)
    assert [proposer.propose([request])[0] for _ in range(3)] == [Draft(), Draft(), Draft(emitted(model, request))]


def test_budget_of_catching_up_goes_to_the_first_and_who_has_caught_up_is_guessed_for(model, new_proposer, request_of):
    proposer = new_proposer(max_num_batched_tokens=5)
    first, second = request_of(PROMPT, 2, key="a"), request_of(PROMPT[::-1][:5], 2, key="b")
    right = [Draft(emitted(model, request)) for request in (first, second)]
    assert proposer.propose([first, second]) == [Draft(), Draft()]
    assert proposer.propose([first, second]) == [right[0], Draft()], "two tokens of the one, three of the other"
    assert proposer.propose([first, second]) == right


def test_no_pass_of_catching_up_runs_more_tokens_than_the_budget(model, new_proposer, request_of):
    nums_tokens = []
    handle = model.get_submodule("model.norm").register_forward_hook(
        lambda _, inputs, __: nums_tokens.append(len(inputs[0]))
    )
    try:
        new_proposer(max_num_batched_tokens=9).propose([request_of(PROMPT, 2, key=key) for key in "ab"])
    finally:
        handle.remove()
    assert nums_tokens == [9, 1, 1], "seven and two of the other; then two guesses of the first"


@settings(deadline=None, max_examples=max(5, settings().max_examples // 5))
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 4), st.lists(st.integers(0, 28), min_size=1, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    params=st.sampled_from([*CERTAIN_PARAMS.values(), *DRAWN_PARAMS.values()]),
    other=st.lists(st.integers(0, 28), min_size=1, max_size=4),
)
def test_guesses_before_do_not_change_a_draft(model, request_of, steps, params, other):
    """As much of a guess as came true is kept, the rest is run over; nor do others that are guessed for beside it."""
    new = {"num_blocks": 24, "block_size": 4, "max_num_batched_tokens": 64}
    proposer = DraftModelProposer(model, **new)
    token_ids = PROMPT[:4]
    for num_tokens, num_kept, emitted_ids in steps:
        request = request_of(token_ids, num_tokens, params=params, seed=7, num_prompt_tokens=4)
        beside = request_of([*other, *token_ids[4:]], 2, key="b")
        draft = proposer.propose([beside, request])[1]
        (fresh,) = DraftModelProposer(model, **new).propose([request])
        assert same(draft, fresh)
        token_ids = [*token_ids, *draft.token_ids[:num_kept], *emitted_ids]
        if len(token_ids) > 18:
            break


def test_tokens_that_change_behind_the_drafts_back_are_run_over(new_proposer, request_of):
    """A key stands for whatever tokens come with it, shorter ones too."""
    proposer = new_proposer()
    proposer.propose([request_of(PROMPT, 4)])
    for token_ids in ([*PROMPT[:3], 8, 8, 8], PROMPT[:3], [7, *PROMPT], PROMPT[:1]):
        request = request_of(token_ids, 4)
        assert proposer.propose([request]) == new_proposer().propose([request])


def test_tokens_that_came_true_never_run_again(model, new_proposer, request_of):
    proposer = new_proposer()
    (draft,) = proposer.propose([request_of(PROMPT, 3)])
    nums_tokens = []
    handle = model.get_submodule("model.norm").register_forward_hook(
        lambda _, inputs, __: nums_tokens.append(len(inputs[0]))
    )
    try:
        proposer.propose([request_of([*PROMPT, *draft.token_ids[:2], 28], 2)])
    finally:
        handle.remove()
    assert nums_tokens == [1, 1], "the two that stayed are there; the one after them runs, and one guess"


def test_requests_in_turn_get_what_each_alone_gets(new_proposer, request_of):
    requests = [
        request_of(PROMPT, 4, key="a"),
        request_of(PROMPT[2:], 2, key="b", params=CERTAIN_PARAMS["seeded"], seed=7),
        request_of(PROMPT[:1], 5, key="c", params=DRAWN_PARAMS["plain"], seed=3),
    ]
    alone = [new_proposer().propose([request])[0] for request in requests]
    together = new_proposer().propose(requests)
    assert all(same(*pair) for pair in zip(together, alone, strict=True))
    proposer = new_proposer()
    for order in ([2], [0, 1], [1, 2, 0]):
        drafts = proposer.propose([requests[place] for place in order])
        assert all(same(draft, alone[place]) for draft, place in zip(drafts, order, strict=True))
    assert proposer.propose([]) == []


def test_forget_gives_every_block_back(new_proposer, request_of):
    proposer = new_proposer(8)
    proposer.propose([request_of(PROMPT, 4, key=key) for key in "ab"])
    assert proposer.num_free_blocks == 2, "eleven tokens run of each: the last guessed one never does"
    proposer.forget("a")
    assert proposer.num_free_blocks == 5
    proposer.forget("a")
    proposer.forget("never seen")
    assert proposer.num_free_blocks == 5
    proposer.forget("b")
    assert proposer.num_free_blocks == 8


def test_reset_gives_every_block_back_whatever_was_lost(new_proposer, request_of):
    proposer = new_proposer(8)
    (expected,) = proposer.propose([request_of(PROMPT, 4, key="a")])
    proposer._pool.allocate(2)
    proposer.reset()
    assert (proposer.num_free_blocks, proposer.num_held_tokens("a")) == (8, 0)
    (again,) = proposer.propose([request_of(PROMPT, 4, key="a")])
    assert same(again, expected)


def test_held_tokens_are_those_that_have_run_and_none_without_room(new_proposer, request_of):
    proposer = new_proposer(5)
    assert proposer.num_held_tokens("a") == 0
    proposer.propose([request_of(PROMPT, 3, key="a")])
    assert proposer.num_held_tokens("a") == len(PROMPT) + 2, "the last guessed token never runs"
    proposer.propose([request_of(PROMPT, 16, key="a")])
    assert proposer.num_held_tokens("a") == 0


def test_forgotten_sample_begins_anew_in_blocks_that_others_had(new_proposer, request_of):
    proposer = new_proposer(3)
    for key in "abab":
        request = request_of([ord(key) % 29, *PROMPT], 2, key=key)
        assert proposer.propose([request]) == new_proposer().propose([request])
        proposer.forget(key)


def test_sample_without_blocks_is_not_guessed_for_and_gives_its_own_back(model, new_proposer, request_of):
    proposer = new_proposer(5)
    first, second = request_of(PROMPT[:5], 3, key="a"), request_of(PROMPT[:4], 3, key="b")
    right = [Draft(emitted(model, request)) for request in (first, second)]
    assert proposer.propose([first, second]) == right
    assert proposer.num_free_blocks == 1
    longer = request_of(PROMPT, 8, key="a")
    third = request_of(PROMPT[:6], 3, key="c")
    assert proposer.propose([longer, second, third]) == [Draft(), right[1], Draft(emitted(model, third))]
    assert proposer.num_free_blocks == 1, "two for each of the others"
    proposer.forget("b")
    proposer.forget("c")
    assert proposer.propose([longer]) == [Draft(emitted(model, longer))], "there is room again"


@pytest.mark.parametrize(("num_tokens", "is_guessed"), [(4, True), (5, False)])
def test_sample_that_outgrows_the_draft_model_is_not_guessed_for(
    model, new_proposer, request_of, num_tokens, is_guessed
):
    """Of 24 positions 21 are taken; the last guessed token never runs."""
    proposer = new_proposer()
    proposer.propose([request_of(PROMPT, 1)])
    long = request_of([*PROMPT, *PROMPT, *PROMPT[:5]], num_tokens)
    small = request_of(PROMPT[:2], 2, key="b")
    drafts = proposer.propose([long, small])
    assert drafts == [Draft(emitted(model, long)) if is_guessed else Draft(), Draft(emitted(model, small))]
    proposer.forget("b")
    assert (proposer.num_free_blocks == 24) is not is_guessed


def test_draft_model_with_scaled_positions_guesses_as_far_as_they_were_made_for(scaled_model, request_of):
    proposer = DraftModelProposer(scaled_model, num_blocks=48, block_size=1, max_num_batched_tokens=64)
    for num_positions in (40, 48, 49):
        draft = proposer.propose([request_of([3] * (num_positions - 1), 2, key=num_positions)])[0]
        assert len(draft.token_ids) == (2 if num_positions <= 48 else 0)
        proposer.forget(num_positions)


def test_draft_model_that_fails_in_the_middle_guesses_right_afterwards(model, new_proposer, request_of):
    proposer = new_proposer()
    request = request_of(PROMPT, 4)
    for failing_pass in range(1, 5):
        passes: list[int] = []

        def fail(*_, passes=passes, failing_pass=failing_pass):
            passes.append(1)
            if len(passes) == failing_pass:
                message = "planted"
                raise RuntimeError(message)

        handle = model.get_submodule("model.layers.1").register_forward_hook(fail)
        try:
            with pytest.raises(RuntimeError, match="planted"):
                proposer.propose([request])
        finally:
            handle.remove()
        assert proposer.propose([request]) == [Draft(emitted(model, request))]


@pytest.mark.parametrize("params", [CERTAIN_PARAMS["greedy"], DRAWN_PARAMS["plain"]], ids=["greedy", "drawn"])
def test_narrow_draft_model_guesses_several_tokens_like_one_by_one(narrow_model, new_proposer, request_of, params):
    """Its rows are widened before anything is made of them."""
    request = request_of(PROMPT, 4, params=params, seed=5)
    (draft,) = new_proposer(own=narrow_model).propose([request])
    assert len(draft.token_ids) == 4
    token_ids: list[int] = []
    for place in range(4):
        (one,) = new_proposer(own=narrow_model).propose([request_of([*PROMPT, *token_ids], 1, params=params, seed=5)])
        assert one.token_ids == draft.token_ids[place : place + 1]
        if params.is_greedy:
            assert one.probabilities is None
        else:
            assert one.probabilities is not None
            assert draft.probabilities is not None
            assert one.probabilities[0].dtype == np.float64
            assert one.probabilities[0].sum() == pytest.approx(1, abs=1e-12)
            np.testing.assert_array_equal(one.probabilities[0], draft.probabilities[place])
        token_ids += one.token_ids

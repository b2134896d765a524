"""A request, and where each of its samples stands."""

import itertools

import pytest

from refinfer.errors import InvariantError, StatusTransitionError
from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import Request, RequestState, RequestStatus
from refinfer.scheduler.held_blocks import HeldBlocks
from refinfer.scheduler.request import held_blocks

REQUEST = Request("a", None, (4, 5), SamplingParams())


def test_new_request_has_its_prompt_and_no_output():
    state = RequestState(REQUEST)
    assert (state.token_ids, state.num_tokens, state.num_prompt_tokens) == ([4, 5], 2, 2)
    assert (state.output_token_ids, state.num_output_tokens, state.num_computed_tokens) == ([], 0, 0)
    assert (state.status, state.is_finished, state.finish_reason) == (RequestStatus.WAITING, False, None)
    assert (state.stop_reason, state.num_cached_tokens, state.num_scored_tokens) == (None, 0, 0)
    assert (state.num_preemptions, state.draft_token_ids, state.blocks, state.first_sample) == (0, (), None, None)


def test_output_tokens_follow_the_prompt():
    state = RequestState(REQUEST)
    for token_id in (0, 7):
        state.append(token_id)
    assert (state.token_ids, state.num_tokens) == ([4, 5, 0, 7], 4)
    assert (state.output_token_ids, state.num_output_tokens) == ([0, 7], 2)


@pytest.mark.parametrize(
    ("params", "asked_for"),
    [({}, ()), ({"temperature": 1.0}, [7]), ({"presence_penalty": 1.0}, [7]), ({"min_tokens": 1}, [7])],
)
def test_output_is_handed_to_the_sampler_where_something_asks_for_it(params, asked_for):
    """Copying it for every token would cost a long greedy answer dear."""
    state = RequestState(Request("a", None, (4, 5), SamplingParams(**params)))
    state.append(7)
    assert state.sample_context(frozenset()).output_token_ids == asked_for


def test_states_never_share_their_tokens():
    first, second = RequestState(REQUEST), RequestState(REQUEST)
    first.append(1)
    assert (second.token_ids, REQUEST.prompt_token_ids) == ([4, 5], (4, 5))


def test_two_states_of_equal_requests_are_two():
    """Runners keep a cache for each state; equal prompts must not share one."""
    first, second = RequestState(REQUEST), RequestState(REQUEST)
    assert first != second
    assert len({first, second}) == 2


MOVES = {
    (RequestStatus.WAITING, RequestStatus.RUNNING),
    (RequestStatus.WAITING, RequestStatus.FINISHED),
    (RequestStatus.RUNNING, RequestStatus.PREEMPTED),
    (RequestStatus.RUNNING, RequestStatus.FINISHED),
    (RequestStatus.PREEMPTED, RequestStatus.RUNNING),
    (RequestStatus.PREEMPTED, RequestStatus.FINISHED),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(RequestStatus, repeat=2)))
def test_request_makes_the_moves_of_its_life_and_no_others(old, new):
    state = RequestState(REQUEST)
    state.status = old
    if (old, new) in MOVES:
        state.move_to(new)
        assert state.status is new
    else:
        with pytest.raises(StatusTransitionError, match=f"request a cannot go from {old} to {new}"):
            state.move_to(new)
        assert state.status is old


@pytest.mark.parametrize("reason", FinishReason)
def test_request_that_has_ended_says_why_and_never_ends_again(reason):
    state = RequestState(REQUEST)
    state.finish(reason, 7)
    assert (state.is_finished, state.finish_reason, state.stop_reason) == (True, reason, 7)
    with pytest.raises(StatusTransitionError):
        state.finish(FinishReason.ABORT)
    assert state.finish_reason is reason


@pytest.mark.parametrize(
    ("prompt_logprobs", "sample_index", "num_scored_tokens", "wants"),
    [(None, 0, 0, False), (0, 0, 0, True), (0, 0, 1, True), (0, 0, 2, False), (3, 1, 0, False)],
)
def test_first_sample_wants_prompt_logprobs_until_it_has_them(prompt_logprobs, sample_index, num_scored_tokens, wants):
    request = Request("a", None, (4, 5), SamplingParams(prompt_logprobs=prompt_logprobs))
    state = RequestState(request, sample_index=sample_index)
    state.num_scored_tokens = num_scored_tokens
    assert state.wants_prompt_logprobs is wants


def test_held_blocks_refuses_a_request_that_was_never_opened():
    state = RequestState(REQUEST)
    with pytest.raises(InvariantError, match="request a was never opened in a block space"):
        held_blocks(state)
    state.blocks = HeldBlocks(4)
    assert held_blocks(state) is state.blocks

"""Where a request stands."""

import pytest

from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import Request, RequestState

REQUEST = Request("a", None, (4, 5), SamplingParams())


def test_new_request_has_its_prompt_and_no_output():
    state = RequestState(REQUEST)
    assert (state.token_ids, state.num_tokens) == ([4, 5], 2)
    assert (state.output_token_ids, state.num_computed_tokens, state.is_finished) == ([], 0, False)


def test_output_tokens_follow_the_prompt():
    state = RequestState(REQUEST)
    state.output_token_ids += [0, 7]
    assert (state.token_ids, state.num_tokens) == ([4, 5, 0, 7], 4)


def test_caller_never_changes_a_request_through_its_token_ids():
    state = RequestState(REQUEST)
    state.token_ids.append(9)
    assert state.token_ids == [4, 5]


def test_states_never_share_their_output():
    first, second = RequestState(REQUEST), RequestState(REQUEST)
    first.output_token_ids.append(1)
    assert second.output_token_ids == []


def test_two_states_of_equal_requests_are_two():
    """Runners keep a cache for each state; equal prompts must not share one."""
    first, second = RequestState(REQUEST), RequestState(REQUEST)
    assert first != second
    assert len({first, second}) == 2


@pytest.mark.parametrize("reason", FinishReason)
def test_request_has_ended_when_it_has_a_reason(reason):
    state = RequestState(REQUEST, finish_reason=reason)
    assert state.is_finished

"""Runners: whatever the batch, each row's logits are those of its own tokens alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.cache import CausalAttentionView
from refinfer.engine.model_runner import ContinuousRunner, ModelRunner, RecomputeRunner, StaticRunner, make_runner
from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import Request, RequestState

# Sums of a few dozen terms near one err by about 1e-15; depth and softmax leave room.
FLOAT64_BOUND = 1e-11
MAX_MODEL_LEN = 40
FEW = settings(deadline=None, max_examples=max(5, settings().max_examples // 5))

token_ids = st.integers(0, 28)
requests = st.lists(
    st.tuples(st.lists(token_ids, min_size=1, max_size=6), st.lists(token_ids, max_size=5)), min_size=1, max_size=4
)


def new_state(prompt, max_tokens=None):
    return RequestState(Request("a", None, tuple(prompt), SamplingParams(max_tokens=max_tokens)))


def expected_logits(model, state):
    """Logits after the newest token of a request, computed alone and from nothing."""
    length = state.num_tokens
    view = CausalAttentionView([length])
    return model.forward(torch.tensor(state.token_ids), torch.arange(length), view, logits_rows=[length - 1])[0]


def assert_rows_match(model, logits, rows):
    """Every running row has its own logits; of ended ones nothing is asked."""
    assert len(logits) == len(rows)
    for row_logits, state in zip(logits, rows, strict=True):
        if not state.is_finished:
            assert (row_logits - expected_logits(model, state)).abs().max() < FLOAT64_BOUND


@FEW
@given(members=requests)
@pytest.mark.parametrize("name", ["none", "static"])
def test_batch_of_fixed_members_gives_each_row_its_own_logits(model, name, members):
    """Output tokens are given, not sampled; a request ends when its list does, and its row stays."""
    runner = make_runner(name, model, MAX_MODEL_LEN)
    rows = [new_state(prompt, max_tokens=len(answer) + 1) for prompt, answer in members]
    for step in range(1 + max(len(answer) for _, answer in members)):
        assert_rows_match(model, runner.execute(rows), rows)
        for state, (_, answer) in zip(rows, members, strict=True):
            if step < len(answer):
                state.output_token_ids.append(answer[step])
            else:
                state.finish_reason = FinishReason.STOP


@FEW
@given(members=requests, arrivals=st.lists(st.integers(0, 4), min_size=4, max_size=4), data=st.data())
def test_continuous_runner_gives_each_row_its_own_logits_while_rows_come_and_go(model, members, arrivals, data):
    runner = ContinuousRunner(model, MAX_MODEL_LEN)
    states = [new_state(prompt) for prompt, _ in members]
    for step in range(12):
        present = [
            (state, answer)
            for state, arrival, (_, answer) in zip(states, arrivals, members, strict=False)
            if arrival <= step and not state.is_finished
        ]
        if not present:
            continue
        present = data.draw(st.permutations(present), label=f"rows of step {step}")
        rows = [state for state, _ in present]
        assert_rows_match(model, runner.execute(rows), rows)
        assert set(runner._cache_by_request) == set(rows), "who has left keeps no memory"
        for state, answer in present:
            if len(state.output_token_ids) < len(answer):
                state.output_token_ids.append(answer[len(state.output_token_ids)])
            else:
                state.finish_reason = FinishReason.STOP


def test_static_runner_begins_anew_with_a_new_batch(model):
    runner = StaticRunner(model, MAX_MODEL_LEN)
    for prompts in ([[1, 2, 3], [4]], [[5, 6], [7]], [[8]]):
        rows = [new_state(prompt) for prompt in prompts]
        for _ in range(2):
            assert_rows_match(model, runner.execute(rows), rows)
            for state in rows:
                state.output_token_ids.append(9)


@pytest.mark.parametrize("max_tokens", [None, 3, 100])
def test_static_runner_has_room_up_to_the_longest_length_and_no_further(model, max_tokens):
    runner = StaticRunner(model, 6)
    rows = [new_state([1, 2], max_tokens), new_state([3], max_tokens)]
    num_steps = min(5, 5 if max_tokens is None else max_tokens)
    for _ in range(num_steps):
        assert_rows_match(model, runner.execute(rows), rows)
        for state in rows:
            state.output_token_ids.append(4)
            if len(state.output_token_ids) == max_tokens or state.num_tokens == 6:
                state.finish_reason = FinishReason.LENGTH
    assert all(state.is_finished for state in rows)


def test_pass_that_fails_can_be_run_again(model, cache, failing):
    runner = make_runner(cache, model, MAX_MODEL_LEN)
    rows = [new_state([1, 2, 3]), new_state([4])]
    for token_id in (5, 6, 7):
        for _ in range(2):
            with failing(model, 1), pytest.raises(RuntimeError, match="planted"):
                runner.execute(rows)
        assert_rows_match(model, runner.execute(rows), rows)
        for state in rows:
            state.output_token_ids.append(token_id)


def test_requests_with_equal_prompts_keep_their_own_answers(model, cache):
    runner = make_runner(cache, model, MAX_MODEL_LEN)
    rows = [new_state([1, 2, 3]), new_state([1, 2, 3])]
    runner.execute(rows)
    rows[0].output_token_ids.append(4)
    rows[1].output_token_ids.append(5)
    assert_rows_match(model, runner.execute(rows), rows)


@pytest.mark.parametrize(
    ("name", "kind"), [("none", RecomputeRunner), ("static", StaticRunner), ("continuous", ContinuousRunner)]
)
def test_make_runner_makes_the_runner_of_each_cache(model, name, kind):
    runner = make_runner(name, model, MAX_MODEL_LEN)
    assert type(runner) is kind
    assert isinstance(runner, ModelRunner)

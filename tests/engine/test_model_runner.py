"""Runners: whatever the batch, each row's logits are those of its own tokens alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.cache import CausalAttentionView
from refinfer.config import EngineConfig
from refinfer.engine.assembly import make_runner
from refinfer.engine.model_runner import ModelRunner
from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import BlockSpace, Request, RequestState, RequestStatus, ScheduledRow

# Sums of a few dozen terms near one err by about 1e-15; depth and softmax leave room.
FLOAT64_BOUND = 1e-11
MAX_MODEL_LEN = 40
FEW = settings(deadline=None, max_examples=max(5, settings().max_examples // 5))

token_ids = st.integers(0, 28)
requests = st.lists(
    st.tuples(st.lists(token_ids, min_size=1, max_size=6), st.lists(token_ids, max_size=5)), min_size=1, max_size=4
)


def new_runner(name, model, max_model_len=MAX_MODEL_LEN, space=None):
    """A runner of a cache; paged with blocks of three, since nobody else holds any."""
    space = space or (BlockSpace(80, 3, enable_prefix_caching=False) if name == "paged" else None)
    runner = make_runner(EngineConfig(cache=name), model, max_model_len, space)
    return Driver(runner, space)


class Driver:
    """Runs rows whole as a scheduler would: reserves blocks before a step, advances after it."""

    def __init__(self, runner, space=None):
        self.runner = runner
        self.space = space

    def execute(self, states):
        for state in states:
            if state.status is RequestStatus.WAITING:
                state.move_to(RequestStatus.RUNNING)
            if self.space is not None:
                if state.blocks is None:
                    self.space.open(state)
                assert self.space.try_reserve(state, state.num_tokens)
        rows = [ScheduledRow.of(state, state.num_tokens - state.num_computed_tokens) for state in states]
        logits = self.runner.execute(rows)
        for row in rows:
            if not row.state.is_finished:
                row.state.num_computed_tokens += row.num_scheduled_tokens
        return logits


def new_state(prompt, max_tokens=None):
    return RequestState(Request("a", None, tuple(prompt), SamplingParams(max_tokens=max_tokens)))


def expected_logits(model, state):
    """Logits after the newest token of a request, computed alone and from nothing."""
    length = state.num_tokens
    view = CausalAttentionView([length])
    return model.forward(torch.tensor(state.token_ids), torch.arange(length), view, logits_rows=[length - 1])[0].numpy()


def assert_rows_match(model, logits, rows):
    """Every running row has its own logits; of ended ones nothing is asked."""
    assert len(logits) == len(rows)
    for row_logits, state in zip(logits, rows, strict=True):
        if not state.is_finished:
            assert abs(row_logits[-1] - expected_logits(model, state)).max() < FLOAT64_BOUND


@FEW
@given(members=requests)
@pytest.mark.parametrize("name", ["none", "static"])
def test_batch_of_fixed_members_gives_each_row_its_own_logits(model, name, members):
    """Output tokens are given, not sampled; a request ends when its list does, and its row stays."""
    runner = new_runner(name, model)
    rows = [new_state(prompt, max_tokens=len(answer) + 1) for prompt, answer in members]
    for step in range(1 + max(len(answer) for _, answer in members)):
        assert_rows_match(model, runner.execute(rows), rows)
        for state, (_, answer) in zip(rows, members, strict=True):
            if step < len(answer):
                state.append(answer[step])
            elif not state.is_finished:
                state.finish(FinishReason.STOP)


@FEW
@given(members=requests, arrivals=st.lists(st.integers(0, 4), min_size=4, max_size=4), data=st.data())
@pytest.mark.parametrize("name", ["continuous", "paged"])
def test_runner_gives_each_row_its_own_logits_while_rows_come_and_go(model, name, members, arrivals, data):
    runner = new_runner(name, model)
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
        if name == "continuous":
            kept = set(runner.runner._cache_by_request)
            assert set(rows) <= kept, "who runs keeps its cache"
            assert not any(state.is_finished for state in kept - set(rows)), "who has left keeps no memory"
        for state, answer in present:
            if len(state.output_token_ids) < len(answer):
                state.append(answer[len(state.output_token_ids)])
            else:
                state.finish(FinishReason.STOP)


def test_static_runner_begins_anew_with_a_new_batch(model):
    runner = new_runner("static", model)
    for prompts in ([[1, 2, 3], [4]], [[5, 6], [7]], [[8]]):
        rows = [new_state(prompt) for prompt in prompts]
        for _ in range(2):
            assert_rows_match(model, runner.execute(rows), rows)
            for state in rows:
                state.append(9)


@pytest.mark.parametrize("max_tokens", [None, 3, 100])
def test_static_runner_has_room_up_to_the_longest_length_and_no_further(model, max_tokens):
    runner = new_runner("static", model, 6)
    rows = [new_state([1, 2], max_tokens), new_state([3], max_tokens)]
    num_steps = min(5, 5 if max_tokens is None else max_tokens)
    for _ in range(num_steps):
        assert_rows_match(model, runner.execute(rows), rows)
        for state in rows:
            state.append(4)
            if len(state.output_token_ids) == max_tokens or state.num_tokens == 6:
                state.finish(FinishReason.LENGTH)
    assert all(state.is_finished for state in rows)


def test_pass_that_fails_can_be_run_again(model, cache, failing):
    runner = new_runner(cache, model)
    rows = [new_state([1, 2, 3]), new_state([4])]
    for token_id in (5, 6, 7):
        for _ in range(2):
            with failing(model, 1), pytest.raises(RuntimeError, match="planted"):
                runner.execute(rows)
        assert_rows_match(model, runner.execute(rows), rows)
        for state in rows:
            state.append(token_id)


def test_requests_with_equal_prompts_keep_their_own_answers(model, cache):
    runner = new_runner(cache, model)
    rows = [new_state([1, 2, 3]), new_state([1, 2, 3])]
    runner.execute(rows)
    rows[0].append(4)
    rows[1].append(5)
    assert_rows_match(model, runner.execute(rows), rows)


def test_runner_of_each_cache_is_a_model_runner(model, cache):
    assert isinstance(new_runner(cache, model).runner, ModelRunner)


def test_swapped_request_gives_the_same_logits_when_it_comes_back(model):
    """A runner that loses or mixes blocks on their way to host memory and back gives other logits."""
    space = BlockSpace(9, 3, enable_prefix_caching=False, num_swap_blocks=9)
    driver = new_runner("paged", model, space=space)
    states = [new_state([1, 2, 3, 4]), new_state([5, 6, 7, 8, 9, 10, 11])]
    driver.execute(states)
    for state in states:
        assert space.preempt(state, by_swap=True)
        state.move_to(RequestStatus.PREEMPTED)
    driver.runner.prepare(space.take_operations())
    assert driver.runner.num_swapped_requests == 2
    for state in reversed(states):
        state.append(12)
        assert space.admit(state)
        state.move_to(RequestStatus.RUNNING)
    driver.runner.prepare(space.take_operations())
    assert driver.runner.num_swapped_requests == 0
    assert_rows_match(model, driver.execute(states), states)


def test_reserved_slots_are_those_of_the_caches_that_are_kept(model):
    expected = {"none": 0, "static": 2 * 5, "paged": 0}
    for name, num_slots in expected.items():
        driver = new_runner(name, model)
        driver.execute([new_state([1, 2, 3], 3), new_state([4], 3)])
        assert driver.runner.num_reserved_slots == num_slots
    driver = new_runner("continuous", model)
    driver.execute([new_state([1, 2, 3])])
    assert driver.runner.num_reserved_slots >= 3

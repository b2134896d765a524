"""One run of several requests: what a plain loop over each request alone would give."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.cache import CausalAttentionView
from refinfer.config import EngineConfig
from refinfer.engine import generation as generation_module
from refinfer.engine.generation import Generation
from refinfer.errors import InvariantError
from refinfer.sampling import SamplingParams, finish_reason
from refinfer.scheduler import Request

VOCAB_SIZE, MAX_MODEL_LEN = 7, 12

requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=MAX_MODEL_LEN - 1),
        st.builds(SamplingParams, max_tokens=st.none() | st.integers(1, 6), ignore_eos=st.booleans()),
    ),
    max_size=6,
)


def make_requests(members):
    return [Request(str(index), None, tuple(prompt), params) for index, (prompt, params) in enumerate(members)]


def scripted_token(token_ids):
    """The fake model: the next token depends on every token before it and on their order."""
    value = 0
    for token_id in token_ids:
        value = 5 * value + token_id + 1
    return value % 101 % VOCAB_SIZE


class ScriptedRunner:
    """Runs the fake model, and keeps which rows ran."""

    def __init__(self):
        self.steps = []

    def execute(self, rows):
        self.steps.append([row.request.request_id for row in rows])
        next_tokens = [scripted_token(row.token_ids) for row in rows]
        return torch.nn.functional.one_hot(torch.tensor(next_tokens), VOCAB_SIZE).float()


def answer_alone(next_token, prompt, params, eos_token_ids, max_model_len=MAX_MODEL_LEN):
    """What a request gets when a plain loop runs it."""
    output: list[int] = []
    while True:
        output.append(next_token([*prompt, *output]))
        reason = finish_reason(
            token_id=output[-1],
            num_output_tokens=len(output),
            num_tokens=len(prompt) + len(output),
            params=params,
            eos_token_ids=eos_token_ids,
            max_model_len=max_model_len,
        )
        if reason is not None:
            return output, reason


@settings(deadline=None)
@given(members=requests, max_num_seqs=st.integers(1, 4), eos=st.sets(st.integers(0, VOCAB_SIZE - 1), max_size=3))
@pytest.mark.parametrize("name", ["none", "static", "continuous"])
def test_generation_gives_each_request_what_it_would_get_alone(model, name, members, max_num_seqs, eos):
    runner = ScriptedRunner()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation_module, "make_runner", lambda *_: runner)
        run = Generation(
            model,  # which the scripted runner never asks
            EngineConfig(cache=name, max_num_seqs=max_num_seqs),
            make_requests(members),
            eos_token_ids=eos,
            max_model_len=MAX_MODEL_LEN,
        )
    tokens_by_id: dict[str, list[int]] = {state.request.request_id: [] for state in run.states}
    while run.has_unfinished_requests():
        step_rows = run.step()
        assert step_rows, "a step that emits nothing would go on for ever"
        for row in step_rows:
            tokens_by_id[row.state.request.request_id].append(row.token_id)
            assert row.logits.argmax() == row.token_id
    for state, (prompt, params) in zip(run.states, members, strict=True):
        expected = answer_alone(scripted_token, prompt, params, eos)
        assert (state.output_token_ids, state.finish_reason) == expected
        assert tokens_by_id[state.request.request_id] == expected[0], "each token is told once, in order"
        assert state.num_computed_tokens == state.num_tokens - 1
    assert all(len(rows) <= max_num_seqs for rows in runner.steps)
    first_steps = [next(n for n, rows in enumerate(runner.steps) if str(i) in rows) for i in range(len(members))]
    assert first_steps == sorted(first_steps), "first come, first served"
    assert run.step() == []


def greedy_token(model, token_ids):
    """The next token of a request that runs alone and from nothing."""
    length = len(token_ids)
    view = CausalAttentionView([length])
    return int(model.forward(torch.tensor(token_ids), torch.arange(length), view, logits_rows=[length - 1]).argmax())


real_requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, 28), min_size=1, max_size=9),
        st.builds(SamplingParams, max_tokens=st.integers(1, 7), ignore_eos=st.booleans()),
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=max(5, settings().max_examples // 10))
@given(members=real_requests, max_num_seqs=st.integers(1, 4), eos=st.sets(st.integers(0, 28), max_size=8))
@pytest.mark.parametrize("name", ["none", "static", "continuous"])
def test_mixed_batch_equals_singleton_token_ids(model, name, members, max_num_seqs, eos):
    """With early ends: many ids end a request, and a row that has ended stays or leaves with its mode."""
    config = EngineConfig(cache=name, max_num_seqs=max_num_seqs)
    run = Generation(model, config, make_requests(members), eos_token_ids=eos, max_model_len=14)
    while run.has_unfinished_requests():
        run.step()
    for state, (prompt, params) in zip(run.states, members, strict=True):
        expected = answer_alone(lambda token_ids: greedy_token(model, token_ids), prompt, params, eos, 14)
        assert (state.output_token_ids, state.finish_reason) == expected


def drain(run):
    while run.has_unfinished_requests():
        run.step()
    return [(state.output_token_ids, state.finish_reason, state.num_computed_tokens) for state in run.states]


def new_run(model, cache):
    """Four requests in two places, of which some end early."""
    prompts = ([1, 2, 3], [4], [5, 6, 7, 8, 9], [10, 11])
    members = [(prompt, SamplingParams(max_tokens=count)) for count, prompt in enumerate(prompts, start=2)]
    config = EngineConfig(cache=cache, max_num_seqs=2)
    return Generation(model, config, make_requests(members), eos_token_ids=(), max_model_len=32)


@pytest.mark.parametrize("pass_number", range(1, 9))
def test_step_that_fails_leaves_the_run_as_it_was(model, cache, failing, pass_number):
    expected = drain(new_run(model, cache))
    run = new_run(model, cache)
    with failing(model, pass_number) as passes:
        while run.has_unfinished_requests():
            before = [(list(state.output_token_ids), state.finish_reason) for state in run.states]
            try:
                run.step()
            except RuntimeError:
                assert [(state.output_token_ids, state.finish_reason) for state in run.states] == before
    assert passes[0] >= pass_number, "the failure has happened"
    assert drain(run) == expected


def test_runs_never_disturb_each_other(model, cache):
    """Steps of two runs in turn: all state of a run is its own."""
    expected = drain(new_run(model, cache))
    first, second = new_run(model, cache), new_run(model, cache)
    first.step()
    while first.has_unfinished_requests() or second.has_unfinished_requests():
        for run in (second, first):
            if run.has_unfinished_requests():
                run.step()
    assert drain(first) == drain(second) == expected


def test_generation_refuses_logits_that_are_not_numbers(model, cache):
    run = new_run(model, cache)
    handle = model.get_submodule("lm_head").register_forward_hook(lambda _, __, logits: logits * float("nan"))
    with pytest.raises(InvariantError, match=r"logits of rows \[0, 1\] hold NaN"):
        run.step()
    handle.remove()
    assert [state.output_token_ids for state in run.states] == [[]] * 4


def test_generation_without_requests_has_nothing_to_do(model, cache):
    run = Generation(model, EngineConfig(cache=cache), [], eos_token_ids=(), max_model_len=8)
    assert not run.has_unfinished_requests()
    assert run.step() == []

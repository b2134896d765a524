"""Each activation of a pass is put down to the request and the positions that it belongs to."""

import pytest
import torch

from oracle.activations import collect_refinfer
from oracle.errors import ActivationMismatch
from oracle.passes import (
    INPUT_IDS,
    POSITION_IDS,
    STEP_LOGITS,
    alone_passes,
    chunked_passes,
    engine_passes,
    names_in_pass,
)
from refinfer import LLM, SamplingParams, load_model
from refinfer.config.engine_config import CACHES
from refinfer.engine.model_runner import ContinuousRunner

PROMPTS = ([40], [2, 3, 4, 5, 6, 7], [70, 71, 72])
CUTS = ((), (1, 4), (2,))
MAX_TOKENS = (2, 5, 3)
KEEPING_MODES = tuple(cache for cache in CACHES if cache != "none")


@pytest.fixture(scope="module")
def model(llama_folder):
    return load_model(llama_folder)


@pytest.fixture(params=["none", *KEEPING_MODES])
def llm(llama_folder, request):
    """Two requests at a time, so that the third joins late."""
    return LLM(llama_folder, cache=request.param, max_num_seqs=2)


def start(llm):
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in MAX_TOKENS]
    return llm.make_requests([list(prompt) for prompt in PROMPTS], params)


def all_token_ids(llm):
    """Prompts and outputs of a run that nobody watches."""
    core, states = llm.start(start(llm))
    while core.has_unfinished_requests():
        core.step()
    return [state.token_ids for state in states]


def assert_close(part, whole, name):
    """What a part shows is what the request shows by itself, at the part's positions."""
    own = part.activations[name]
    positions = part.positions[-len(own) :]
    torch.testing.assert_close(own, whole[name][positions.start : positions.stop], rtol=1e-4, atol=1e-4)


def test_each_part_has_all_names_in_order_of_execution(model):
    ((part,),) = alone_passes(model, PROMPTS[:1])
    names = names_in_pass(num_layers=3)
    assert set(part.activations) == set(names)
    assert names[:3] == (INPUT_IDS, POSITION_IDS, "model.embed_tokens")
    assert names[-2:] == ("lm_head", STEP_LOGITS)


def test_alone_passes_run_each_request_whole(model):
    parts = [part for parts in alone_passes(model, PROMPTS) for part in parts]
    assert [(part.request_index, part.positions) for part in parts] == [(0, range(1)), (1, range(6)), (2, range(3))]
    for part, prompt in zip(parts, PROMPTS, strict=True):
        whole = collect_refinfer(model, prompt)
        assert all(torch.equal(part.activations[name], whole[name]) for name in whole)
        assert part.activations[INPUT_IDS].tolist() == prompt


def test_chunked_passes_run_first_chunks_together_then_the_next(model):
    places = [
        [(part.request_index, part.positions) for part in parts] for parts in chunked_passes(model, PROMPTS, CUTS)
    ]
    assert places == [
        [(0, range(1)), (1, range(1)), (2, range(2))],
        [(1, range(1, 4)), (2, range(2, 3))],
        [(1, range(4, 6))],
    ]


def test_chunked_passes_show_what_the_request_shows_by_itself(model):
    wholes = [collect_refinfer(model, prompt) for prompt in PROMPTS]
    for parts in chunked_passes(model, PROMPTS, CUTS):
        for part in parts:
            for name in wholes[0]:
                assert_close(part, wholes[part.request_index], name)


def test_engine_passes_show_what_the_request_shows_by_itself(llm):
    """A part with somebody else's rows, or rows of another position, would be far off."""
    token_ids = all_token_ids(llm)
    wholes = [collect_refinfer(llm.model, own) for own in token_ids]
    for parts in engine_passes(llm, start(llm)):
        for part in parts:
            positions = part.positions
            assert part.activations[INPUT_IDS].tolist() == [token_ids[part.request_index][place] for place in positions]
            assert part.activations[POSITION_IDS].tolist() == list(positions)
            torch.testing.assert_close(part.activations[STEP_LOGITS], part.activations["lm_head"], rtol=0, atol=0)
            for name in wholes[0]:
                assert_close(part, wholes[part.request_index], name)


@pytest.mark.parametrize("mode", KEEPING_MODES)
def test_engine_passes_run_each_token_once_where_a_cache_keeps_it(llama_folder, mode):
    llm = LLM(llama_folder, cache=mode, max_num_seqs=2)
    parts = [part for parts in engine_passes(llm, start(llm)) for part in parts]
    for index, token_ids in enumerate(all_token_ids(llm)):
        positions = [place for part in parts if part.request_index == index for place in part.positions]
        assert positions == list(range(len(token_ids) - 1))  # the last token is emitted and never run


def test_engine_passes_have_one_part_for_each_token_emitted(llm):
    """Rows that have ended stay in a static batch; what they compute is nobody's."""
    parts = [part for parts in engine_passes(llm, start(llm)) for part in parts]
    assert [sum(part.request_index == index for part in parts) for index in range(3)] == list(MAX_TOKENS)


def test_watching_does_not_change_tokens(llm):
    token_ids = all_token_ids(llm)
    last = {part.request_index: part for parts in engine_passes(llm, start(llm)) for part in parts}
    emitted = [int(last[index].activations[STEP_LOGITS].argmax()) for index in range(3)]
    assert emitted == [own[-1] for own in token_ids]


def test_engine_passes_refuse_a_step_that_runs_other_tokens(llama_folder, monkeypatch):
    llm = LLM(llama_folder, cache="continuous")
    execute = ContinuousRunner.execute

    def execute_without_last_token(runner, rows):
        return execute(
            runner, [row._replace(num_scheduled_tokens=max(1, row.num_scheduled_tokens - 1)) for row in rows]
        )

    monkeypatch.setattr(ContinuousRunner, "execute", execute_without_last_token)
    with pytest.raises(ActivationMismatch, match=r"8 tokens ran, where .* have \[1, 6, 3\] to run"):
        next(engine_passes(llm, start(llm)))


def test_engine_passes_leave_no_hook_behind(llm):
    for _ in engine_passes(llm, start(llm)):
        assert not any(module._forward_hooks for module in llm.model.modules())


@pytest.mark.parametrize("mode", ["continuous", "paged"])
def test_step_that_hands_nobody_logits_has_no_parts(llama_folder, mode):
    """A prompt that is longer than the budget runs in several steps, and the last of them emits."""
    llm = LLM(llama_folder, cache=mode, max_num_batched_tokens=4)
    parts = [part for parts in engine_passes(llm, start(llm)) for part in parts]
    assert [sum(part.request_index == index for part in parts) for index in range(3)] == list(MAX_TOKENS)

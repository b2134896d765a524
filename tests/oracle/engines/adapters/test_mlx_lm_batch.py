from collections import Counter

import pytest

from oracle.engines.adapters.mlx_lm_settings import KNOBS
from oracle.engines.messages import EngineRequest
from tests.oracle.engines.adapters.mlx_lm_stand_in import continuation, put_in_place

SETTING = {name: values[0] for name, values in KNOBS.items()} | {"way": "batch"}


@pytest.fixture
def run_batch(monkeypatch):
    """Runs requests in a batch; gives outputs by id, what was counted, and the stand-in."""
    stand_in, modules = put_in_place(monkeypatch)

    def run(*requests, before=(), **knobs):
        opened = modules.mlx_lm_model.OpenModel.open("folder", SETTING | knobs)
        counted: Counter[str] = Counter()
        generator = None
        for group in (*before, requests):
            counted.clear()
            batch = modules.mlx_lm_batch.BatchRun(opened, generator, counted)
            outputs = batch.run(group)
            generator = batch.generator
        return outputs, counted, stand_in

    return run


def test_requests_run_together(run_batch):
    outputs, counted, _ = run_batch(EngineRequest("a", (1, 2), 3), EngineRequest("b", (4,), 2, {"ignore_eos": True}))
    assert outputs["a"].samples[0].token_ids == continuation((1, 2), 3)
    assert outputs["b"].samples[0].token_ids == continuation((4,), 2)
    assert (counted["max_batch"], counted["steps"], counted["chunks"]) == (2, 4, 2)


def test_a_late_request_comes_after_its_steps(run_batch):
    outputs, counted, _ = run_batch(EngineRequest("a", (1, 2), 2), EngineRequest("b", (3, 3), 1, arrival=6))
    assert outputs["b"].samples[0].token_ids == continuation((3, 3), 1)
    assert (counted["arrivals"], counted["max_batch"], counted["steps"]) == (1, 1, 8)


def test_an_aborted_request_leaves_with_what_came(run_batch):
    outputs, counted, _ = run_batch(EngineRequest("a", (1, 2), 5, abort_after=2), EngineRequest("b", (1, 2), 4))
    sample = outputs["a"].samples[0]
    assert (sample.token_ids, sample.finish_reason) == (continuation((1, 2), 2), "abort")
    assert outputs["b"].samples[0].token_ids == continuation((1, 2), 4)
    assert counted["aborts"] == 1


def test_a_stop_token_ends_a_request_and_stands_in_its_output(run_batch):
    first = continuation((1, 2), 1)[0]
    outputs, _, _ = run_batch(EngineRequest("a", (1, 2), 5, {"stop_token_ids": [first]}))
    sample = outputs["a"].samples[0]
    assert (sample.token_ids, sample.finish_reason, sample.stop_token_id) == ((first,), "stop", first)


def test_a_refusal_of_mlx_lm_is_the_output(run_batch):
    outputs, _, _ = run_batch(EngineRequest("a", (), 1), EngineRequest("b", (1,), 1, {"min_p": 1.5}))
    assert "empty prompt" in outputs["a"].refused
    assert "min_p" in outputs["b"].refused


def test_prompts_are_cut_into_segments(run_batch):
    _, _, stand_in = run_batch(EngineRequest("a", (1, 2, 3, 4, 5), 1), segment_size=2)
    assert ("insert_segments", [[1, 2], [3, 4], [5]]) in stand_in.calls


def test_a_kept_prompt_is_not_run_again(run_batch):
    request = EngineRequest("a", (1, 2), 1)
    longer = EngineRequest("b", (1, 2, *continuation((1, 2), 1), 5), 2)
    outputs, counted, stand_in = run_batch(longer, before=[[request]], prompt_cache="reuse")
    assert outputs["b"].samples[0].token_ids == continuation(longer.prompt_token_ids, 2)
    assert counted["cached_tokens"] == 3
    assert [words for words, _ in stand_in.calls].count("BatchGenerator") == 1


def test_the_prompt_of_an_aborted_request_is_kept_as_far_as_it_ran(run_batch):
    aborted = EngineRequest("a", (1, 2), 5, abort_after=1)
    longer = EngineRequest("b", (1, 2, *continuation((1, 2), 1), 5), 1)
    _, counted, _ = run_batch(longer, before=[[aborted]], prompt_cache="reuse")
    assert counted["cached_tokens"] == 3

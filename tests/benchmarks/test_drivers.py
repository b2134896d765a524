"""Every driver gives the same tokens, and says of each when it came."""

import json
import sys
from functools import partial
from unittest.mock import Mock

import pytest

from oracle.errors import EngineCrashed, EngineError
from tests.benchmarks import engines, vllm_process
from tests.benchmarks.drivers import Run, batches_of, left_padded, refinfer
from tests.benchmarks.hugging_face import _wait_for, generate, generate_batch

pytestmark = pytest.mark.without_shape_checks

STAND_IN = '''
"""Stands in for vLLM: each token is the one before it and one more, and the first request comes last."""
from types import SimpleNamespace


class SamplingParams:
    def __init__(self, **settings):
        assert settings["ignore_eos"] and settings["temperature"] == 0
        self.max_tokens = settings["max_tokens"]


class LLM:
    def __init__(self, model, **settings):
        print("said where answers go")
        if "refused" in settings:
            raise ValueError("no such setting")
        self.llm_engine = Engine()


class Engine:
    def __init__(self):
        self.requests = {}

    def add_request(self, request_id, prompt, params):
        self.requests[request_id] = (prompt["prompt_token_ids"][-1], params.max_tokens, [])

    def has_unfinished_requests(self):
        return any(len(tokens) < most for _, most, tokens in self.requests.values())

    def step(self):
        outputs = []
        for request_id, (last, most, tokens) in self.requests.items():
            if len(tokens) < most:
                tokens.append((tokens or [last])[-1] + 1)
                outputs.append(SimpleNamespace(request_id=request_id, outputs=[SimpleNamespace(token_ids=tokens)]))
        return outputs[::-1]
'''

ALL = {
    **{f"refinfer {name}": own for name, own in engines.modes().items()},
    "plain": partial(refinfer, batch_invariant=False),
    "shared": partial(refinfer, enable_prefix_caching=True),
    "static": partial(generate, batch_size=2),
    "batch": partial(generate_batch, page_size=4),
}


@pytest.fixture(scope="module")
def expected(tiny):
    with generate(tiny) as runner:
        return runner().token_ids


@pytest.mark.parametrize("opener", ALL.values(), ids=ALL)
def test_every_driver_gives_the_tokens_of_the_reference(tiny, expected, opener):
    with opener(tiny) as runner:
        for _ in range(2):  # a run leaves nothing behind that the next one would find
            run = runner()
            assert run.token_ids == expected
            assert run.times is not None
            assert [len(own) for own in run.times] == list(tiny.max_tokens)
            assert all(own[0] > 0 and own == sorted(own) for own in run.times)
            assert max(own[-1] for own in run.times) <= run.seconds
            assert run.processor_seconds > 0
            assert run.num_passes is not None
            assert max(tiny.max_tokens) <= run.num_passes <= tiny.num_output_tokens


def test_reference_runs_one_request_after_the_other(tiny):
    with generate(tiny) as runner:
        run = runner()
    assert run.num_passes == tiny.num_output_tokens
    assert run.times is not None
    assert run.times[0][-1] < run.times[1][0] < run.times[2][0]


def test_keys_and_values_of_a_run_are_counted(tiny):
    with refinfer(tiny, block_size=16) as runner:
        run = runner()
    pairs = zip(tiny.prompts, tiny.max_tokens, strict=True)
    # Places of each step, in one block of 16 for each request that runs
    used = sum(len(prompt) + place for prompt, most in pairs for place in range(most))
    assert run.kv_use == pytest.approx(used / (16 * tiny.num_output_tokens))


def test_prefix_cache_begins_empty_in_every_run(tiny):
    with refinfer(tiny, block_size=1, enable_prefix_caching=True, max_num_seqs=1) as runner:
        assert runner().kv_use == runner().kv_use


@pytest.fixture
def stand_in(tmp_path, tiny):
    """Opens the driver of vLLM with a module that stands in for it."""
    (tmp_path / "vllm.py").write_text(STAND_IN, encoding="utf-8")
    command = [sys.executable, str(vllm_process.DRIVER)]

    def opened(**settings):
        return vllm_process.driven(tiny, settings, command, {"PYTHONPATH": str(tmp_path)})

    return opened


def test_process_of_vllm_runs_work_as_often_as_it_is_asked(stand_in):
    with stand_in(seed=0) as runner:
        for _ in range(2):
            run = runner()
            assert run.token_ids == [[4, 5, 6, 7], [9, 10], [11, 12, 13, 14, 15, 16]]
            assert run.num_passes == 6
            assert [len(own) for own in run.times] == [4, 2, 6]


def test_process_of_vllm_that_ends_says_why(stand_in):
    with pytest.raises(EngineCrashed, match="no such setting"), stand_in(refused=True):
        pass


@pytest.mark.parametrize("before_answer", ["pass", "import os; os.close(0)"], ids=["while-it-ends", "deaf-already"])
def test_process_of_vllm_that_ends_between_two_runs_says_so(tiny, before_answer):
    """Whether it still takes in the next question, or does not."""
    command = [sys.executable, "-c", f"input(); {before_answer}; print('{{}}', flush=True)"]
    with (
        vllm_process.driven(tiny, {}, command, {}) as runner,
        pytest.raises(EngineCrashed, match="ended with status 0"),
    ):
        runner()


def test_manager_that_ends_before_its_requests_is_told(tiny):
    manager = Mock(get_result=Mock(side_effect=[Mock(request_id="a"), None]), is_running=Mock(return_value=False))
    with pytest.raises(EngineError, match="ended with 1 of 3 requests answered"):
        _wait_for(manager, len(tiny.prompts))


def test_run_is_the_same_after_json():
    run = Run(2.0, 1.0, [[1, 2], [3]], [[0.5, 1.0], [1.5]], 3, 0.25)
    assert Run.from_json(json.loads(json.dumps(run.as_json()))) == run
    assert run.throughput == 1.5
    assert (run.mean_ttft, run.mean_itl, run.gaps) == (1.0, 0.5, [0.5])
    assert (Run(1.0, 1.0, [[1]]).mean_ttft, Run(1.0, 1.0, [[1]]).mean_itl) == (None, None)


def test_left_padded_prompts_end_in_the_last_column():
    ids, mask = left_padded([[1, 2, 3], [4]])
    assert ids.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_batches_keep_the_order(tiny):
    assert list(batches_of(tiny, 2)) == [([[1, 2, 3], [4, 5, 6, 7, 8]], [4, 2]), ([[9, 10]], [6])]

"""The adapter drives vLLM step by step; a stand-in takes its place, and where it is installed, vLLM itself."""

import importlib
import sys
import types
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.messages import EngineRequest
from oracle.engines.process import ProcessEngine
from oracle.engines.registry import find_recipe

ADAPTER = "oracle.engines.adapters.vllm_cpu"
FIRST_TOKEN = 100


class ClientError(Exception):
    """What vLLM raises of a request."""


class Scheduler:
    """Runs what it is given, with as many blocks as requests."""

    def __init__(self):
        self.running: list[Any] = []
        self.kv_cache_manager = SimpleNamespace(
            block_pool=SimpleNamespace(num_gpu_blocks=10, get_num_free_blocks=lambda: 9 - len(self.running))
        )


class StandIn:
    """Gives every request a token each step, counted up from 100; requests that say so fail or wait."""

    def __init__(self, config, stat_loggers):
        self.config = config
        self.scheduler = Scheduler()
        self.engine_core = SimpleNamespace(
            engine_core=SimpleNamespace(scheduler=self.scheduler), shutdown=self._shut_down
        )
        self.logger = stat_loggers[0](None, 0)
        self.calls = []
        self.is_shut = False
        self._is_asleep = 0

    @classmethod
    def from_vllm_config(cls, config, stat_loggers):
        if config.block_size == "of no kernel":
            message = "no such block size"
            raise ValueError(message)
        return cls(config, stat_loggers)

    def add_request(self, request_id, prompt, params, *, arrival_time, priority):
        if params.max_tokens == 0:
            message = "max_tokens must be at least 1"
            raise ClientError(message)
        self.calls.append(("add", request_id, prompt, params, arrival_time, priority))
        self.scheduler.running.append(
            SimpleNamespace(
                request_id=request_id,
                params=params,
                num_prompt_tokens=len(prompt["prompt_token_ids"]),
                num_computed_tokens=0,
                token_ids=[],
            )
        )

    def has_unfinished_requests(self):
        return bool(self.scheduler.running)

    def step(self):
        self.calls.append(("step",))
        prefix = SimpleNamespace(hits=3, preempted_hits=1)
        drafts = SimpleNamespace(num_draft_tokens=5, num_accepted_tokens=2)
        self.logger.record(
            SimpleNamespace(prefix_cache_stats=prefix, spec_decoding_stats=drafts),
            SimpleNamespace(num_preempted_reqs=1),
        )
        self.logger.record(SimpleNamespace(prefix_cache_stats=prefix, spec_decoding_stats=None), None)
        self.logger.record(None, None)
        outputs = []
        for state in list(self.scheduler.running):
            outputs += self._advance(state)
        return outputs

    def _advance(self, state):
        if state.params.stop_token_ids == ["raise"]:
            message = "broken inside"
            raise RuntimeError(message)
        if state.params.stop_token_ids == ["never"]:
            return []
        half = state.num_prompt_tokens // 2
        if state.num_computed_tokens < half:
            state.num_computed_tokens = half
            return []
        state.token_ids.append(FIRST_TOKEN + len(state.token_ids))
        is_last = len(state.token_ids) == state.params.max_tokens
        if is_last:
            self.scheduler.running.remove(state)
        sample = SimpleNamespace(
            index=0,
            token_ids=list(state.token_ids),
            finish_reason="length" if is_last else None,
            stop_reason=None,
            logprobs=None,
        )
        return [SimpleNamespace(request_id=state.request_id, outputs=[sample], prompt_logprobs=None)]

    def abort_request(self, request_ids):
        self.calls.append(("abort", *request_ids))
        self.scheduler.running[:] = [state for state in self.scheduler.running if state.request_id not in request_ids]

    def _shut_down(self):
        self.is_shut = True


class EngineArguments:
    """What vLLM makes a configuration of."""

    def __init__(self, **arguments):
        self.arguments = arguments

    def create_engine_config(self):
        if self.arguments.get("max_num_seqs") == 0:
            message = "max_num_seqs must be positive"
            raise ValueError(message)
        return SimpleNamespace(**{"block_size": None, **self.arguments})


class Platform:
    @classmethod
    def register_triton_kernel_overrides(cls):
        message = "llvmlite is in the way"
        raise AttributeError(message)


@pytest.fixture
def adapter_module(monkeypatch):
    """The adapter, with a stand-in for vLLM."""
    parameters = {
        "SamplingParams": lambda **arguments: SimpleNamespace(**{"stop_token_ids": None, **arguments}),
        "StructuredOutputsParams": SimpleNamespace,
    }
    modules: dict[str, dict[str, Any]] = {
        "vllm": {"__version__": "0.0", **parameters},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"EngineArgs": EngineArguments},
        "vllm.exceptions": {"VLLMClientError": ClientError},
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.sampling_params": parameters,
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.llm_engine": {"LLMEngine": StandIn},
        "vllm.v1.metrics": {},
        "vllm.v1.metrics.loggers": {"StatLoggerBase": object},
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, ADAPTER, raising=False)
    yield importlib.import_module(ADAPTER)
    sys.modules.pop(ADAPTER, None)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 131, "eos_token_id": 7}')
    return str(tmp_path)


@pytest.fixture
def make_adapter(adapter_module):
    """Gives a function that makes an adapter by name, which is closed afterwards."""
    with ExitStack() as stack:

        def make(name="VllmAdapter"):
            adapter = getattr(adapter_module, name)()
            stack.callback(adapter.close)
            return adapter

        yield make


@pytest.fixture
def adapter(make_adapter, folder):
    adapter = make_adapter()
    adapter.open(folder, {"block_size": 32})
    return adapter


def steps_and_others(adapter):
    """The calls of the engine, without what requests hold."""
    return [call[:2] for call in adapter._engine.calls]


def test_adapter_is_one(make_adapter):
    assert isinstance(make_adapter(), EngineAdapter)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("VllmAdapter", "raw_logprobs"),
        ("VllmSpeculativeAdapter", "raw_logprobs"),
        ("VllmLogitsAdapter", "raw_logits"),
        ("VllmProcessedAdapter", "processed_logprobs"),
    ],
)
def test_each_adapter_opens_vllm_with_what_it_shows(make_adapter, folder, name, mode):
    adapter = make_adapter(name)
    adapter.open(folder, {})
    assert adapter._engine.config.logprobs_mode == mode
    assert adapter.declare().version == "0.0"
    adapter.declare().check()


def test_requests_run_together_and_answer_in_their_order(adapter):
    run = adapter.run([EngineRequest("b", (1, 2), 3), EngineRequest("a", (1,), 2)])
    assert [(output.request_id, output.samples[0].token_ids) for output in run.outputs] == [
        ("b", (100, 101, 102)),
        ("a", (100, 101)),
    ]


def test_arrivals_are_counted_in_steps_also_while_nothing_runs(adapter):
    adapter.run([EngineRequest("a", (1,), 1), EngineRequest("b", (1,), 1, arrival=2)])
    assert steps_and_others(adapter) == [("add", "a"), ("step",), ("add", "b"), ("step",)]


def test_requests_arrive_in_their_order_with_priority_and_salt(adapter):
    adapter.run(
        [EngineRequest("a", (1,), 1, {"priority": 2}), EngineRequest("b", (1,), 1, {"cache_salt": "x"})],
    )
    first, second = (call for call in adapter._engine.calls if call[0] == "add")
    assert first[4] < second[4]
    assert (first[5], second[5]) == (2, 0)
    assert second[2] == {"prompt_token_ids": [1], "cache_salt": "x"}


def test_a_request_is_aborted_after_its_tokens(adapter):
    run = adapter.run([EngineRequest("a", (1,), 9, abort_after=2), EngineRequest("b", (1,), 3)])
    assert steps_and_others(adapter) == [
        ("add", "a"), ("add", "b"), ("step",), ("step",), ("abort", "a"), ("step",)
    ]  # fmt: skip
    assert run.outputs[0].samples[0].finish_reason == "abort"
    assert run.outputs[1].samples[0].finish_reason == "length"


def test_choices_become_structured_outputs(adapter):
    adapter.run([EngineRequest("a", (1,), 1, {"choices": [[3], [4]]})])
    assert len(adapter._engine.calls[0][3].structured_outputs.choice) == 2


def test_a_refused_request_lets_the_others_run(adapter):
    run = adapter.run([EngineRequest("a", (1,), 0), EngineRequest("b", (1,), 1)])
    assert "max_tokens must be at least 1" in run.outputs[0].refused
    assert run.outputs[1].samples[0].token_ids == (100,)


def test_an_unknown_parameter_is_refused(adapter):
    run = adapter.run([EngineRequest("a", (1,), 1, {"no_repeat_ngram_size": 2})])
    assert "no_repeat_ngram_size" in run.outputs[0].refused


def test_witnesses_are_counted_anew_in_each_run(make_adapter, folder):
    adapter = make_adapter("VllmSpeculativeAdapter")
    adapter.open(folder, {})
    for _ in range(2):
        run = adapter.run([EngineRequest("a", (1, 2, 3, 4), 1), EngineRequest("b", (1,), 1)])
        assert run.witnesses == {
            "steps": 2,
            "preemptions": 2,
            "cached_tokens": 16,
            "max_batch": 1,
            "chunked_prompts": 1,
            "blocks_held": 0,
            "drafted_tokens": 10,
            "accepted_tokens": 4,
            "rejected_tokens": 6,
        }


def test_an_engine_that_raised_is_not_asked_again(adapter):
    with pytest.raises(RuntimeError, match="broken inside"):
        adapter.run([EngineRequest("a", (1,), 1, {"stop_token_ids": ["raise"]})])
    with pytest.raises(RuntimeError, match="nothing is open"):
        adapter.run([EngineRequest("a", (1,), 1)])


def test_an_engine_without_end_raises(adapter, adapter_module, monkeypatch):
    monkeypatch.setattr(adapter_module, "SPARE_STEPS", 5)
    with pytest.raises(RuntimeError, match="have not ended after 8 steps"):
        adapter.run([EngineRequest("a", (1,), 1, {"stop_token_ids": ["never"]})])


def test_an_engine_in_which_nothing_runs_is_waited_for_only_so_long(adapter, adapter_module, monkeypatch):
    monkeypatch.setattr(adapter_module, "PATIENCE", 0.0)
    monkeypatch.setattr(adapter_module.VllmAdapter, "_step", lambda *_: False)
    with pytest.raises(RuntimeError, match="have not ended after 0 steps"):
        adapter.run([EngineRequest("a", (1,), 1)])


@pytest.mark.parametrize("knobs", [{"max_num_seqs": 0}, {"block_size": "of no kernel"}])
def test_settings_that_vllm_does_not_take_are_refused(make_adapter, folder, knobs):
    adapter = make_adapter()
    with pytest.raises(Refused):
        adapter.open(folder, knobs)


def test_opening_closes_what_was_open(adapter, folder):
    before = adapter._engine
    adapter.open(folder, {})
    assert before.is_shut
    assert adapter._engine is not before


def test_closing_twice_does_nothing(adapter):
    adapter.close()
    adapter.close()
    with pytest.raises(RuntimeError, match="nothing is open"):
        adapter.run([])


def test_kernels_are_put_in_place_once_only(adapter):
    assert adapter is not None
    Platform.register_triton_kernel_overrides()


def test_vllm_itself_answers_over_the_process(installed_python, tmp_path):
    """Skipped where vLLM is not installed; one engine is opened, for half a minute."""
    recipe = find_recipe("vllm")
    python = installed_python("vllm")
    folder = write_checkpoint(CheckpointSpec(head_dim=32, eos_token_ids=(1,)), tmp_path)
    engine = ProcessEngine.of_python(recipe.target, str(python), environment=recipe.environment)
    try:
        knobs = {name: values[0] for name, values in engine.declare().knobs.items()}
        engine.open(str(folder), knobs)
        run = engine.run(
            [
                EngineRequest("plain", (5, 9, 5, 9), 4),
                EngineRequest("chosen", (5, 9), 4, {"choices": [[3, 4], [8]]}, arrival=1),
                EngineRequest("refused", (5, 9), 0),
            ]
        )
    finally:
        engine.close()
    plain, chosen, refused = run.outputs
    assert len(plain.samples[0].token_ids) == 4
    assert chosen.samples[0].token_ids in [(3, 4, 1), (8, 1)]
    assert "max_tokens" in str(refused.refused)

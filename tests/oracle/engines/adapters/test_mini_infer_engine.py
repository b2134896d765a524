"""mini-infer behind the protocol: with a stand-in whose steps are scripted, and for real where it is installed."""

import importlib
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.messages import EngineRequest
from oracle.engines.process import ProcessEngine
from oracle.families import FamilySpec, cached_family_checkpoint

ADAPTER = "oracle.engines.adapters.mini_infer_engine"


class StandInCache:
    """Counts as its own prefixes of two tokens of whatever it is asked for."""

    def __init__(self):
        self.cache = {}

    def match_prefix(self, token_ids, _block_pool):
        return [0], min(2, len(token_ids))


class StandInEngine:
    """One token a step for each request, counted up from the prompt's first."""

    def __init__(self, model, config, *, max_batch_size, enable_prefix_caching, **_settings):
        assert (model, config) == ("model", "config")
        self.prefix_cache = StandInCache() if enable_prefix_caching else None
        self.block_pool = SimpleNamespace(num_blocks=8, num_free=8)
        self.scheduler = SimpleNamespace(running=[], waiting=[], preempted_count=0)
        self.scheduler.has_unfinished_sequences = lambda: bool(self.scheduler.running or self.scheduler.waiting)
        self._most = max_batch_size

    def add_request(self, prompt_token_ids, *, sampling_params, request_id):
        sequence = SimpleNamespace(
            request_id=request_id,
            prompt=prompt_token_ids,
            params=sampling_params,
            output_token_ids=[],
            is_prefill_complete=False,
            is_finished=False,
        )
        self.scheduler.waiting.append(sequence)
        return sequence

    def step(self):
        scheduler = self.scheduler
        scheduler.running = [sequence for sequence in scheduler.running if not sequence.is_finished]
        while scheduler.waiting and len(scheduler.running) < self._most:
            scheduler.running.append(scheduler.waiting.pop(0))
        given = []
        for sequence in scheduler.running:
            if self.prefix_cache is not None and not sequence.output_token_ids:
                self.prefix_cache.match_prefix(sequence.prompt, self.block_pool)
            token_id = sequence.prompt[0] + len(sequence.output_token_ids)
            sequence.output_token_ids.append(token_id)
            sequence.is_prefill_complete = True
            given.append((sequence, token_id))
            is_full = len(sequence.output_token_ids) >= sequence.params.max_tokens
            sequence.is_finished = is_full or token_id in sequence.params.stop_token_ids
        return given


@pytest.fixture
def adapter_module(monkeypatch):
    """The adapter's module, imported with stand-ins for mini-infer and its version."""
    package, models = ModuleType("mini_infer"), ModuleType("mini_infer.models")
    vars(package).update(InferenceEngine=StandInEngine, SamplingParams=SimpleNamespace)
    vars(models).update(load_model_from_safetensors=lambda _folder, **_options: ("model", "config"))
    monkeypatch.setitem(sys.modules, "mini_infer", package)
    monkeypatch.setitem(sys.modules, "mini_infer.models", models)
    monkeypatch.delitem(sys.modules, ADAPTER, raising=False)
    module = importlib.import_module(ADAPTER)
    monkeypatch.setattr(module.metadata, "version", lambda _name: "0.0")
    yield module
    sys.modules.pop(ADAPTER, None)


@pytest.fixture
def folder(tmp_path):
    config = {"eos_token_id": 13, "rope_parameters": {"rope_theta": 3.0}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"")
    return tmp_path


@pytest.fixture
def open_adapter(adapter_module, folder):
    opened = []

    def open_with(**knobs):
        adapter = adapter_module.MiniInferAdapter()
        simplest = {name: values[0] for name, values in adapter.declare().knobs.items()}
        adapter.open(str(folder), simplest | knobs)
        opened.append(adapter)
        return adapter

    yield open_with
    for adapter in opened:
        adapter.close()


def requests_of(*prompts, **parameters):
    return [EngineRequest(f"r{place}", prompt, 4, parameters) for place, prompt in enumerate(prompts)]


def tokens_of(run):
    return [output.samples[0].token_ids for output in run.outputs]


def test_adapter_has_the_four_methods_and_says_the_version(adapter_module):
    adapter = adapter_module.MiniInferAdapter()
    assert isinstance(adapter, EngineAdapter)
    assert adapter.declare().version == "0.0"


def test_requests_end_with_eos_of_the_checkpoint_or_go_past_it(open_adapter):
    adapter = open_adapter()
    assert tokens_of(adapter.run(requests_of((12, 5), (3,)))) == [(12, 13), (3, 4, 5, 6)]
    assert tokens_of(adapter.run(requests_of((12, 5), ignore_eos=True))) == [(12, 13, 14, 15)]


def test_request_comes_at_its_step(open_adapter):
    first, second = requests_of((3,), (20,))
    late = EngineRequest(second.request_id, second.prompt_token_ids, 1, {}, arrival=2)
    run = open_adapter().run([first, late])
    assert tokens_of(run) == [(3, 4, 5, 6), (20,)]
    assert run.witnesses["max_batch"] == 2
    assert run.witnesses["steps"] == 5


def test_prefixes_that_it_caches_are_counted(open_adapter):
    run = open_adapter(enable_prefix_caching=True).run(requests_of((3, 4, 5), (6,)))
    assert run.witnesses["cached_tokens"] == 3


def test_what_it_does_not_have_is_refused(open_adapter):
    (output,) = open_adapter().run(requests_of((3,), n=2)).outputs
    assert output.refused == "SamplingParams has no n"


def test_requests_that_nobody_runs_are_told_of_and_a_new_engine_follows(open_adapter):
    adapter = open_adapter(max_batch_size=0)
    with pytest.raises(RuntimeError, match="r0 wait for 8 free blocks, and no request runs"):
        adapter.run(requests_of((3,)))
    adapter._knobs["max_batch_size"] = 1
    assert tokens_of(adapter.run(requests_of((3,)))) == [(3, 4, 5, 6)]


def test_older_configuration_is_written_beside_the_same_weights(open_adapter, folder):
    adapter = open_adapter(config_format="legacy")
    copy = folder.__class__(adapter._folder)
    assert json.loads((copy / "config.json").read_text(encoding="utf-8"))["rope_theta"] == 3.0
    assert (copy / "model.safetensors").resolve() == folder / "model.safetensors"
    adapter.close()
    assert not copy.exists()


def test_open_refuses_a_folder_without_configuration(open_adapter, folder):
    (folder / "config.json").unlink()
    with pytest.raises(Refused, match="holds neither"):
        open_adapter()


def test_run_refuses_to_run_nothing(adapter_module):
    with pytest.raises(RuntimeError, match="no model is open"):
        adapter_module.MiniInferAdapter().run(requests_of((3,)))


def test_mini_infer_itself_gives_greedy_tokens_of_one_request(installed_python):
    engine = ProcessEngine.of_python(f"{ADAPTER}:MiniInferAdapter", str(installed_python("mini-infer")))
    try:
        knobs = {name: values[0] for name, values in engine.declare().knobs.items()}
        engine.open(str(cached_family_checkpoint(FamilySpec("qwen2"))), knobs)
        (tokens,) = tokens_of(engine.run(requests_of(tuple(range(5, 25)), ignore_eos=True)))
        assert tokens == (13, 12, 107, 65)
    finally:
        engine.close()

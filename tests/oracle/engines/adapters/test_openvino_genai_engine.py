"""openvino-genai behind the protocol: with a stand-in everywhere, and itself where it is installed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from transformers import LlamaForCausalLM

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.messages import EngineRequest
from oracle.engines.process import ProcessEngine

pytestmark = pytest.mark.without_shape_checks  # which cannot tell classes of a module that is imported twice

MODULE = "oracle.engines.adapters.openvino_genai_engine"
REQUESTS = "oracle.engines.adapters.openvino_genai_requests"
MODEL = "oracle.engines.adapters.llama_openvino"


class Pipeline:
    """Keeps what it was made with, and has nothing to do."""

    made: ClassVar[list["Pipeline"]] = []

    def __init__(self, folder, scheduler, device, properties):
        if scheduler.num_kv_blocks == 0:
            message = "too few blocks"
            raise RuntimeError(message)
        self.folder, self.scheduler, self.device, self.properties = folder, scheduler, device, properties
        self.is_broken = False
        Pipeline.made.append(self)

    def add_request(self, _, prompt, config):
        return SimpleNamespace(
            can_read=lambda: False, get_status=lambda: SimpleNamespace(name="FINISHED"), prompt=prompt, config=config
        )

    def has_non_finished_requests(self):
        if self.is_broken:
            message = "an invariant does not hold"
            raise RuntimeError(message)
        return False


@pytest.fixture
def module(import_with, stand_in, monkeypatch):
    """The adapter's module, beside stand-ins for the engine and for what writes models."""
    openvino = stand_in("openvino", Tensor=lambda array: array[0].tolist())
    genai = stand_in(
        "openvino_genai",
        __version__="1.2",
        SchedulerConfig=SimpleNamespace,
        GenerationConfig=SimpleNamespace,
        ContinuousBatchingPipeline=Pipeline,
        draft_model=lambda folder, device, **properties: (folder, device, properties),
    )
    model = stand_in(
        MODEL,
        write_llama_openvino=lambda folder, target, num_layers: (target / "model").write_text(
            f"{folder.name} {num_layers}"
        ),
        write_mute_tokenizer=lambda target: (target / "tokenizer").touch(),
    )
    monkeypatch.setattr(Pipeline, "made", [])
    packages = {"openvino": openvino, "openvino_genai": genai}
    requests = import_with(REQUESTS, **packages)
    return import_with(MODULE, **packages, **{MODEL: model, REQUESTS: requests})


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    return folder


@pytest.fixture
def make(module):
    """Gives a function that makes an adapter, which is closed after the test."""
    adapters = []

    def make_adapter(attribute="OpenVinoGenaiAdapter"):
        adapters.append(getattr(module, attribute)())
        return adapters[-1]

    yield make_adapter
    for adapter in adapters:
        adapter.close()


@pytest.fixture(params=["OpenVinoGenaiAdapter", "OpenVinoGenaiSpeculativeAdapter"])
def adapter(make, request):
    return make(request.param)


def simplest(adapter):
    return {name: values[0] for name, values in adapter.declare().knobs.items()}


def test_adapter_is_one_and_declares_what_the_harness_knows(adapter):
    assert isinstance(adapter, EngineAdapter)
    declaration = adapter.declare()
    declaration.check()
    assert declaration.version == "1.2"


def test_knobs_go_into_the_schedulers_config(adapter, checkpoint):
    for name, values in adapter.declare().knobs.items():
        adapter.open(str(checkpoint), simplest(adapter) | {name: values[-1]})
        if name != "speculation":
            assert getattr(Pipeline.made[-1].scheduler, name) == values[-1]
    assert Pipeline.made[-1].properties["KV_CACHE_PRECISION"] == "f32"


def test_model_is_written_once_for_each_checkpoint(make, checkpoint):
    adapter = make()
    adapter.open(str(checkpoint), simplest(adapter))
    adapter.open(str(checkpoint), simplest(adapter) | {"max_num_seqs": 1})
    first, second = Pipeline.made
    assert first.folder == second.folder


def test_guesses_come_from_lookup_or_from_a_cut_off_model(make, checkpoint):
    adapter = make("OpenVinoGenaiSpeculativeAdapter")
    adapter.open(str(checkpoint), simplest(adapter) | {"speculation": "prompt-lookup"})
    adapter.open(str(checkpoint), simplest(adapter) | {"speculation": "draft"})
    lookup, draft = Pipeline.made
    assert lookup.properties["prompt_lookup"] is True
    folder, device, _ = draft.properties["draft_model"]
    assert (folder != draft.folder, device) == (True, "CPU")


@pytest.mark.parametrize(
    ("config", "words"), [(None, "holds no config.json"), ({}, "wants an EOS token, and the checkpoint names none")]
)
def test_open_refuses_what_the_engine_cannot_run(make, tmp_path, config, words):
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    adapter = make()
    with pytest.raises(Refused, match=words):
        adapter.open(str(tmp_path), simplest(adapter))


def test_open_passes_on_the_engines_refusal(make, checkpoint):
    adapter = make()
    with pytest.raises(Refused, match="the engine does not open it: too few blocks"):
        adapter.open(str(checkpoint), simplest(adapter) | {"num_kv_blocks": 0})


def test_run_refuses_when_nothing_is_open(make):
    with pytest.raises(Refused, match="no checkpoint is open"):
        make().run([])


def test_run_refuses_one_request_that_asks_for_what_there_is_not(make, checkpoint):
    adapter = make()
    adapter.open(str(checkpoint), simplest(adapter))
    refused, answered = adapter.run(
        [EngineRequest("a", (1,), 1, {"logits": True}), EngineRequest("b", (1,), 1)]
    ).outputs
    assert refused.refused == "a generation config has no logits"
    assert answered.refused is None


def test_run_after_a_broken_one_begins_with_a_new_pipeline(make, checkpoint):
    adapter = make()
    adapter.open(str(checkpoint), simplest(adapter))
    Pipeline.made[0].is_broken = True
    with pytest.raises(RuntimeError, match="an invariant does not hold"):
        adapter.run([EngineRequest("a", (1,), 1)])
    assert adapter.run([EngineRequest("a", (1,), 1)]).outputs[0].refused is None
    assert len(Pipeline.made) == 2


def test_close_takes_what_was_written_away(make, checkpoint):
    adapter = make()
    adapter.open(str(checkpoint), simplest(adapter))
    folder = Path(Pipeline.made[0].folder)
    assert folder.is_dir()
    adapter.close()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("attribute", "knobs"),
    [
        ("OpenVinoGenaiAdapter", {}),
        ("OpenVinoGenaiSpeculativeAdapter", {"speculation": "prompt-lookup"}),
        ("OpenVinoGenaiSpeculativeAdapter", {"speculation": "draft"}),
    ],
    ids=["plain", "prompt lookup", "draft"],
)
def test_engine_matches_reference_greedy_tokens(installed_python, tmp_path, attribute, knobs):
    python = installed_python("openvino-genai")
    folder = write_checkpoint(CheckpointSpec(num_kv_heads=1, eos_token_ids=(1,)), tmp_path / "checkpoint")
    engine = ProcessEngine.of_python(f"{MODULE}:{attribute}", str(python), timeout=120.0)
    try:
        simple = {name: values[0] for name, values in engine.declare().knobs.items()}
        engine.open(str(folder), simple | knobs)
        prompts = [(5, 3, 8), (60, 2)]
        run = engine.run([EngineRequest(str(place), prompt, 6) for place, prompt in enumerate(prompts)])
    finally:
        engine.close()
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for prompt, output in zip(prompts, run.outputs, strict=True):
        (sample,) = output.samples
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *sample.token_ids]])).logits[0]
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == list(sample.token_ids)

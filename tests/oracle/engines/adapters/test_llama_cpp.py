"""llama.cpp behind the protocol: with a stand-in everywhere, and itself where it is installed."""

import math

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.messages import EngineRequest
from oracle.engines.process import ProcessEngine

pytestmark = pytest.mark.without_shape_checks  # which cannot tell classes of a module that is imported twice

PREFIX = "oracle.engines.adapters"

EOS_TOKEN_ID = 1


class Context:
    """After a token comes the next one; the row says so with probabilities of 1/2, 1/4 and so on."""

    vocab_size = 8
    handle = "handle"
    last: "Context"

    def __init__(self, path, knobs):
        assert path.endswith("model.gguf")
        self.knobs = knobs
        self.is_closed = False
        self.rows = {}
        self.is_broken = False
        Context.last = self

    def decode(self, tokens):
        if self.is_broken:
            message = "llama_decode gave -1"
            raise RuntimeError(message)
        self.rows = {
            place: np.roll(-np.arange(8, dtype=np.float32) * math.log(2.0), token.token_id + 1)
            for place, token in enumerate(tokens)
        }

    def logits(self, place):
        return self.rows[place]

    def forget(self, *_):
        """Keeps nothing, so there is nothing to forget."""

    def share(self, *_):
        """Likewise."""

    def close(self):
        self.is_closed = True


class Chain:
    """Takes the likeliest token, and writes down what it was made of."""

    made: list[tuple[object, ...]] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, parameters, prompt, vocab_size, seed):
        if parameters.get("repetition_penalty") == 0.0:
            message = "no sampler"
            raise ValueError(message)
        Chain.made.append((parameters, prompt, vocab_size, seed))

    def sample(self, context, place):
        assert context == "handle"
        return int(Context.last.rows[place].argmax())

    def close(self):
        """Holds nothing."""


@pytest.fixture
def make(import_with, stand_in, monkeypatch):
    """Gives a function that makes an adapter, which is closed after the test."""
    monkeypatch.setattr(Chain, "made", [])
    context = stand_in(f"{PREFIX}.llama_cpp_context", LlamaContext=Context, NUM_SEQUENCES=4)
    sampling = stand_in(
        f"{PREFIX}.llama_cpp_sampling",
        SamplerChain=Chain,
        PARAMETERS=("temperature", "repetition_penalty", "seed"),
        ORDER=(),
    )
    module = import_with(f"{PREFIX}.llama_cpp", **{part.__name__: part for part in (context, sampling)})
    monkeypatch.setattr(module, "version", lambda _: "0.0")
    adapters = []

    def make_adapter():
        adapters.append(module.LlamaCppAdapter())
        return adapters[-1]

    yield make_adapter
    for adapter in adapters:
        adapter.close()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(CheckpointSpec(eos_token_ids=(EOS_TOKEN_ID,)), tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def opened(make, checkpoint):
    adapter = make()
    adapter.open(str(checkpoint), {name: values[0] for name, values in adapter.declare().knobs.items()})
    return adapter


def test_adapter_is_one_and_declares_what_the_harness_knows(make):
    adapter = make()
    assert isinstance(adapter, EngineAdapter)
    adapter.declare().check()


def test_outputs_come_in_the_order_of_requests(opened):
    run = opened.run([EngineRequest("b", (4,), 2, arrival=3), EngineRequest("a", (2, 3), 3)])
    assert [(output.request_id, output.samples[0].token_ids) for output in run.outputs] == [
        ("b", (5, 6)),
        ("a", (4, 5, 6)),
    ]
    assert run.witnesses["max_batch"] == 1


def test_eos_ends_a_request_unless_it_is_ignored(opened):
    plain, ignoring = opened.run(
        [EngineRequest("a", (6,), 5), EngineRequest("b", (6,), 5, {"ignore_eos": True})]
    ).outputs
    assert (plain.samples[0].token_ids, plain.samples[0].finish_reason) == ((7, 0, 1), "stop")
    assert (ignoring.samples[0].token_ids, ignoring.samples[0].finish_reason) == ((7, 0, 1, 2, 3), "length")


def test_stop_tokens_end_a_request(opened):
    (output,) = opened.run([EngineRequest("a", (2,), 5, {"stop_token_ids": [4]})]).outputs
    assert output.samples[0].token_ids == (3, 4)


def test_scores_are_those_of_the_rows(opened):
    (output,) = opened.run([EngineRequest("a", (2,), 2, {"logprobs": 2, "logits": True})]).outputs
    (sample,) = output.samples
    total = sum(0.5**place for place in range(8))
    assert sample.logprobs == pytest.approx([-math.log(total)] * 2)
    assert sample.top_logprobs[0] == pytest.approx({3: -math.log(total), 4: math.log(0.5) - math.log(total)})
    assert sample.logits[0] == tuple(np.roll(-np.arange(8, dtype=np.float32) * math.log(2.0), 3).tolist())


def test_prompt_scores_begin_at_the_second_token(opened):
    (output,) = opened.run([EngineRequest("a", (2, 3, 3), 1, {"prompt_logprobs": 0})]).outputs
    nothing, likely, unlikely = output.prompt_logprobs
    assert nothing is None
    assert likely[3] > unlikely[3]
    assert (set(likely), set(unlikely)) == ({3}, {3})


def test_answers_of_one_request_have_seeds_of_their_own(opened):
    (output,) = opened.run([EngineRequest("a", (2,), 1, {"n": 2, "seed": 5, "temperature": 1.0})]).outputs
    assert len(output.samples) == 2
    assert [seed for *_, seed in Chain.made] == [5, 6]


def test_parameters_reach_the_chain(opened):
    opened.run([EngineRequest("a", (2,), 1, {"temperature": 0.5, "repetition_penalty": None})])
    ((parameters, prompt, vocab_size, _),) = Chain.made
    assert (parameters, prompt, vocab_size) == ({"temperature": 0.5}, (2,), 8)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (EngineRequest("a", (), 1), "needs a prompt"),
        (EngineRequest("a", (2,), 0), "room for a token"),
        (EngineRequest("a", (2,), 1, {"repetition_penalty": 0.0}), "no sampler"),
        (EngineRequest("a", (2,), 1, {"cache_salt": "x"}), "has no cache_salt"),
    ],
)
def test_refused_request_leaves_others_alone(opened, request_, words):
    refused, answered = opened.run([request_, EngineRequest("b", (2,), 1)]).outputs
    assert words in refused.refused
    assert answered.samples[0].token_ids == (3,)


def test_aborted_request_keeps_what_came(opened):
    (output,) = opened.run([EngineRequest("a", (2,), 5, abort_after=2)]).outputs
    assert (output.samples[0].token_ids, output.samples[0].finish_reason) == ((3, 4), "abort")


def test_run_after_a_broken_one_begins_anew(opened):
    Context.last.is_broken = True
    with pytest.raises(RuntimeError, match="llama_decode gave -1"):
        opened.run([EngineRequest("a", (2,), 1)])
    Context.last.is_broken = False
    assert opened.run([EngineRequest("a", (2,), 1)]).outputs[0].samples[0].token_ids == (3,)


def test_run_refuses_when_nothing_is_open(make):
    with pytest.raises(Refused, match="no checkpoint is open"):
        make().run([])


def test_open_refuses_a_folder_without_a_checkpoint(make, tmp_path):
    with pytest.raises(Refused, match=r"holds no config\.json"):
        make().open(str(tmp_path), {})


def test_close_lets_go_of_the_context(opened):
    context = Context.last
    opened.close()
    assert context.is_closed


@pytest.mark.parametrize(
    "spec",
    [
        CheckpointSpec(num_kv_heads=1, eos_token_ids=(EOS_TOKEN_ID,)),
        CheckpointSpec(rope_type="llama3", eos_token_ids=(EOS_TOKEN_ID,)),
        CheckpointSpec(rope_type="linear", attention_bias=True, mlp_bias=True, eos_token_ids=(EOS_TOKEN_ID,)),
        CheckpointSpec(tie_word_embeddings=True, eos_token_ids=(EOS_TOKEN_ID,)),
    ],
    ids=["plain", "llama3", "biases", "tied"],
)
def test_engine_matches_reference_logits(installed_python, tmp_path, spec):
    python = installed_python("llama-cpp")
    folder = write_checkpoint(spec, tmp_path / "checkpoint")
    engine = ProcessEngine.of_python(f"{PREFIX}.llama_cpp:LlamaCppAdapter", str(python), timeout=120.0)
    try:
        engine.open(str(folder), {name: values[-1] for name, values in engine.declare().knobs.items()})
        prompts = [(5, 3, 8), (60, 2)]
        requests = [EngineRequest(str(place), prompt, 6, {"logits": True}) for place, prompt in enumerate(prompts)]
        run = engine.run(requests)
    finally:
        engine.close()
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for prompt, output in zip(prompts, run.outputs, strict=True):
        (sample,) = output.samples
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *sample.token_ids]])).logits[0].numpy()
        np.testing.assert_allclose(np.array(sample.logits), logits[len(prompt) - 1 : -1], atol=5e-4)

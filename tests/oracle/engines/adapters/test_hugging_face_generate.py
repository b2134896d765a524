"""`generate` behind the protocol, on a real tiny Llama."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.adapters.hugging_face_generate import HuggingFaceGenerateAdapter, HuggingFacePaddedAdapter
from oracle.engines.messages import EngineRequest
from oracle.families import FamilySpec, cached_family_checkpoint

PROMPTS = ((5, 9, 33), (70, 12, 44, 91, 17, 63, 28, 101, 8), (41,))
MAX_TOKENS = 8


@pytest.fixture(scope="module")
def folder():
    return str(cached_family_checkpoint(FamilySpec()))


def knobs_of(adapter, **others):
    return {name: values[0] for name, values in adapter.declare().knobs.items()} | others


def requests_of(*prompts, max_tokens=MAX_TOKENS, **parameters):
    return [EngineRequest(f"r{place}", prompt, max_tokens, parameters) for place, prompt in enumerate(prompts)]


def open_alone(folder, **knobs):
    adapter = HuggingFaceGenerateAdapter()
    adapter.open(folder, knobs_of(adapter, **knobs))
    return adapter


def answers(adapter, *prompts, **parameters):
    """The tokens of the first sample of each request."""
    return [output.samples[0].token_ids for output in adapter.run(requests_of(*prompts, **parameters)).outputs]


@pytest.fixture(scope="module")
def alone(folder):
    return open_alone(folder)


@pytest.fixture(scope="module")
def padded(folder):
    adapter = HuggingFacePaddedAdapter()
    adapter.open(folder, knobs_of(adapter))
    return adapter


@pytest.fixture(scope="module")
def greedy(folder):
    """Greedy tokens without end, by forward passes of the whole sequence."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for prompt in PROMPTS:
        tokens = list(prompt)
        for _ in range(MAX_TOKENS):
            with torch.no_grad():
                tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
        found.append(tuple(tokens[len(prompt) :]))
    return found


@pytest.mark.parametrize("make", [HuggingFaceGenerateAdapter, HuggingFacePaddedAdapter])
def test_adapter_has_the_four_methods(make):
    assert isinstance(make(), EngineAdapter)


def test_requests_one_by_one_give_greedy_tokens(alone, greedy):
    assert answers(alone, *PROMPTS, ignore_eos=True) == greedy


def test_requests_in_one_batch_give_greedy_tokens(padded, greedy):
    run = padded.run(requests_of(*PROMPTS, ignore_eos=True))
    assert [output.samples[0].token_ids for output in run.outputs] == greedy
    assert run.witnesses == {"forwards": MAX_TOKENS, "chunks": 0, "padding_tokens": 14, "max_batch": 3}


@pytest.mark.parametrize(
    "knobs",
    [
        {"attn_implementation": "eager"},
        {"cache_implementation": "static"},
        {"use_cache": False},
        {"prefill_chunk_size": 3},
        {"speculation": "prompt-lookup"},
        {"speculation": "assistant"},
        {"speculation": "early-exit"},
    ],
    ids=lambda knobs: "-".join(map(str, *knobs.items())),
)
def test_no_knob_changes_a_token(folder, greedy, knobs):
    assert answers(open_alone(folder, **knobs), *PROMPTS, ignore_eos=True) == greedy


def test_chunks_and_accepted_guesses_are_witnessed(folder):
    prompt = PROMPTS[1]
    assert open_alone(folder, prefill_chunk_size=3).run(requests_of(prompt)).witnesses["chunks"] == 2
    witnesses = open_alone(folder, speculation="assistant").run(requests_of(prompt, ignore_eos=True)).witnesses
    assert witnesses["accepted_tokens"] == MAX_TOKENS - witnesses["forwards"] > 0


def test_request_ends_with_eos_or_a_stop_token(alone, greedy):
    eos = [7, 19, 34, 58, 77, 101, 113, 126]
    stop = greedy[1][3]
    for tokens, expected in zip(answers(alone, *PROMPTS, stop_token_ids=[stop]), greedy, strict=True):
        ends = [place for place, token_id in enumerate(expected) if token_id in (*eos, stop)]
        assert tokens == expected[: ends[0] + 1 if ends else None]


def test_rows_of_a_batch_end_for_themselves(padded, alone):
    stop_token_ids = list(range(0, 131, 9))
    found = answers(padded, *PROMPTS, stop_token_ids=stop_token_ids)
    assert found == answers(alone, *PROMPTS, stop_token_ids=stop_token_ids)
    assert len(set(map(len, found))) > 1


def test_logits_and_log_probabilities_come_when_asked_for(alone):
    (sample,) = alone.run(requests_of(PROMPTS[0], logprobs=2, logits=True)).outputs[0].samples
    for token_id, row, logprob, listed in zip(
        sample.token_ids, sample.logits, sample.logprobs, sample.top_logprobs, strict=True
    ):
        expected = torch.tensor(row).log_softmax(dim=-1)
        assert int(expected.argmax()) == token_id
        assert logprob == pytest.approx(expected[token_id].item(), abs=1e-5)
        assert len(listed) == 2
        assert listed[token_id] == pytest.approx(logprob, abs=1e-5)


def test_allowed_tokens_alone_come(alone):
    assert set(answers(alone, PROMPTS[0], allowed_token_ids=[3, 4], ignore_eos=True)[0]) <= {3, 4}


def test_bias_brings_a_token(alone):
    assert set(answers(alone, PROMPTS[0], logit_bias=[[3, 100.0]])[0]) == {3}


def test_seeded_request_draws_the_same_again_and_its_samples_differ(alone):
    requests = requests_of(PROMPTS[0], temperature=1.5, seed=3, n=2, ignore_eos=True)
    first, again = alone.run(requests).outputs, alone.run(requests).outputs
    assert first == again
    assert len({sample.token_ids for sample in first[0].samples}) == 2


def test_samples_of_a_batch_go_to_their_requests(padded):
    outputs = padded.run(requests_of(*PROMPTS, temperature=1.5, seed=3, n=2, logits=True, ignore_eos=True)).outputs
    assert [len(output.samples) for output in outputs] == [2, 2, 2]
    for output in outputs:  # samples of one request begin from the same logits
        assert output.samples[0].logits[0] == pytest.approx(output.samples[1].logits[0], abs=1e-4)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"n": 2}, "num_return_sequences"),
        ({"top_k": -5, "temperature": 1.0}, "top_k"),
    ],
    ids=["temperature", "greedy-n", "top_k"],
)
def test_request_that_generate_does_not_take_is_refused_in_its_words(alone, parameters, words):
    assert words in alone.run(requests_of(PROMPTS[0], **parameters)).outputs[0].refused


def test_batch_refuses_requests_that_ask_for_something_else(padded):
    other = EngineRequest("other", (5,), 3, {"ignore_eos": True})
    outputs = padded.run([*requests_of(PROMPTS[0]), other]).outputs
    assert outputs[0].refused is None
    assert "one GenerationConfig" in outputs[1].refused


def test_open_refuses_what_transformers_cannot_load(tmp_path):
    with pytest.raises(Refused):
        open_alone(str(tmp_path))


def test_open_refuses_an_attention_that_the_family_lacks():
    with pytest.raises(Refused, match="scaled_dot_product_attention"):
        open_alone(str(cached_family_checkpoint(FamilySpec("bloom"))))


def test_run_refuses_to_run_nothing(folder):
    adapter = open_alone(folder)
    adapter.close()
    with pytest.raises(RuntimeError, match="no model is open"):
        adapter.run(requests_of(PROMPTS[0]))

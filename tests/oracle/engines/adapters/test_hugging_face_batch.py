"""Continuous batching behind the protocol, on a real tiny Llama."""

import pytest

from oracle.engines.adapter import EngineAdapter
from oracle.engines.adapters.hugging_face_batch import MAX_MANAGERS, HuggingFaceBatchAdapter
from oracle.engines.adapters.hugging_face_generate import HuggingFaceGenerateAdapter
from oracle.engines.messages import EngineRequest
from oracle.families import FamilySpec, cached_family_checkpoint

PROMPTS = ((5, 9, 33), (70, 12, 44, 91, 17, 63, 28, 101, 8), (41, 6))


def open_on_llama(make):
    adapter = make()
    folder = str(cached_family_checkpoint(FamilySpec()))
    adapter.open(folder, {name: values[0] for name, values in adapter.declare().knobs.items()})
    return adapter


@pytest.fixture
def adapter():
    return open_on_llama(HuggingFaceBatchAdapter)


def requests_of(*parameters, max_tokens=8):
    return [
        EngineRequest(f"r{place}", PROMPTS[place % 3], max_tokens, own, arrival=2 * place)
        for place, own in enumerate(parameters)
    ]


def test_adapter_has_the_four_methods():
    assert isinstance(HuggingFaceBatchAdapter(), EngineAdapter)


def test_requests_give_what_generate_gives(adapter):
    requests = requests_of({}, {"ignore_eos": True}, {"stop_token_ids": list(range(0, 131, 7))})
    run = adapter.run(requests)
    expected = open_on_llama(HuggingFaceGenerateAdapter).run(requests)
    assert [output.samples for output in run.outputs] == [output.samples for output in expected.outputs]
    assert run.witnesses["max_batch"] > 1
    assert run.witnesses["held_blocks"] == 0


def test_requests_that_a_manager_cannot_hold_together_run_side_by_side(adapter):
    requests = requests_of({}, {"temperature": 1.0, "top_k": 1}, {"temperature": 1.0, "n": 2})
    run = adapter.run(requests)
    assert [len(output.samples) for output in run.outputs] == [1, 1, 2]
    # The one likeliest token is the greedy one.
    greedy = adapter.run([EngineRequest("g", PROMPTS[1], 8)]).outputs[0].samples
    assert run.outputs[1].samples == greedy


def test_log_probabilities_come_to_those_that_asked(adapter):
    first, second = adapter.run(requests_of({"logprobs": 0}, {})).outputs
    assert len(first.samples[0].logprobs) == len(first.samples[0].token_ids)
    assert second.samples[0].logprobs is None


def test_managers_are_kept_but_not_without_number(adapter):
    adapter.run(requests_of({}))
    (manager,) = adapter._manager_by_key.values()
    adapter.run(requests_of({}))
    assert list(adapter._manager_by_key.values()) == [manager]
    adapter.run(
        requests_of(*({"temperature": 1.0, "n": number} for number in range(2, MAX_MANAGERS + 3)), max_tokens=1)
    )
    assert len(adapter._manager_by_key) == MAX_MANAGERS


def test_what_no_manager_takes_is_refused(adapter):
    first, second = adapter.run(requests_of({"repetition_penalty": 2.0}, {})).outputs
    assert "repetition_penalty" in first.refused
    assert second.refused is None


def test_error_of_a_step_is_raised_and_new_managers_follow(adapter):
    before = adapter.run(requests_of({})).outputs
    with pytest.raises(IndexError):
        adapter.run([EngineRequest("beyond", (5, 1000), 3)])
    assert adapter.run(requests_of({})).outputs == before


def test_run_refuses_to_run_nothing():
    with pytest.raises(RuntimeError, match="no model is open"):
        HuggingFaceBatchAdapter().run([EngineRequest("a", (5,), 3)])

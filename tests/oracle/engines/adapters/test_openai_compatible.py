"""A server is put in the dock as it stands: what is declared is what it showed, and what it says is passed on."""

import threading

import pytest

from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.adapters.openai_compatible import OpenAiCompatibleAdapter
from oracle.engines.adapters.openai_http import ServerFailed
from oracle.engines.messages import EngineRequest


@pytest.fixture
def opened(serve_toy):
    """Gives a function that opens an adapter of a server; gives both adapter and engine."""

    def open_adapter(dialect):
        address, engine = serve_toy(dialect)
        adapter = OpenAiCompatibleAdapter(address, timeout=20.0)
        adapter.open("nowhere", {})
        engine.bodies.clear()
        return adapter, engine

    return open_adapter


def test_adapter_is_one():
    assert isinstance(OpenAiCompatibleAdapter("http://127.0.0.1:9"), EngineAdapter)


def test_declaration_says_what_a_rich_server_showed(opened):
    adapter, _ = opened("vllm")
    declaration = adapter.declare()
    declaration.check()
    assert declaration.name.endswith(" (toy)")
    assert set(declaration.capabilities) == {
        *("batching", "aborts", "logprobs", "top_logprobs", "prompt_logprobs", "seeded_sampling"),
    }
    assert {"temperature", "logit_bias", "stop_token_ids", "logprobs"} <= set(declaration.parameters)
    assert "priority" not in declaration.parameters
    assert (declaration.units, declaration.ignore_eos, declaration.max_model_len) == ("tokens", "emits", 64)
    assert (declaration.families, declaration.dtype) == ((), "bfloat16")


def test_declaration_says_that_only_text_comes_back(opened):
    declaration = opened("text")[0].declare()
    assert declaration.units == "characters"
    assert declaration.ignore_eos == "never"
    assert "logprobs" not in declaration.parameters


def test_declaration_says_that_prompts_are_sent_as_text(opened):
    assert opened("mlx")[0].declare().units == "tokens-of-text"


def test_server_is_probed_once(opened):
    adapter, engine = opened("vllm")
    adapter.declare()
    adapter.open("elsewhere", {})
    assert engine.bodies == []


def test_open_refuses_settings(opened):
    with pytest.raises(Refused, match="block_size cannot be set from here"):
        opened("vllm")[0].open("nowhere", {"block_size": 16})


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_address_may_end_as_users_know_it(serve_toy, suffix):
    address, _ = serve_toy("vllm")
    assert OpenAiCompatibleAdapter(address + suffix).declare().name == f"{address} (toy)"


def test_address_may_say_more_about_what_is_served(serve_toy):
    address, _ = serve_toy("vllm")
    declaration = OpenAiCompatibleAdapter(f"{address}/v1#model=other&dtype=float32").declare()
    assert (declaration.name, declaration.dtype) == (f"{address} (other)", "float32")


def test_address_refuses_what_it_cannot_say():
    with pytest.raises(ValueError, match="has modle after its #, where only model and dtype may stand"):
        OpenAiCompatibleAdapter("http://127.0.0.1:9#modle=toy")


def test_run_gives_outputs_in_the_order_of_requests(opened):
    adapter, _ = opened("vllm")
    requests = [EngineRequest(str(number), (number, 9), 3) for number in range(4)]
    together = adapter.run(requests)
    assert [output.request_id for output in together.outputs] == ["0", "1", "2", "3"]
    assert together.outputs == tuple(adapter.run([request]).outputs[0] for request in requests)
    assert together.witnesses == {"cached_tokens": 4}


def test_run_sends_its_requests_at_once(opened):
    adapter, engine = opened("vllm")
    engine.start_together = threading.Barrier(3)
    assert len(adapter.run([EngineRequest(str(number), (5,), 2) for number in range(3)]).outputs) == 3


def test_run_reports_what_is_refused_and_answers_the_rest(opened):
    adapter, _ = opened("vllm")
    refused, answered = adapter.run([EngineRequest("a", (99,), 2), EngineRequest("b", (5,), 2)]).outputs
    assert refused.refused == "400: a token id is out of the vocabulary"
    assert refused.samples == ()
    assert len(answered.samples[0].token_ids) == 2


def test_run_of_nothing_asks_nothing(opened):
    adapter, engine = opened("vllm")
    assert adapter.run([]).outputs == ()
    assert engine.bodies == []


def test_run_does_not_hide_that_the_server_broke(opened):
    adapter, engine = opened("vllm")
    engine.faults.add("breaks")
    with pytest.raises(ServerFailed, match="the engine is dead"):
        adapter.run([EngineRequest("a", (5,), 2)])


def test_run_does_not_repair_an_answer_without_ids(opened):
    adapter, engine = opened("vllm")
    engine.faults.add("no ids")
    with pytest.raises(ServerFailed, match="what came back for a is no completion"):
        adapter.run([EngineRequest("a", (5,), 2)])


def test_aborted_request_hangs_up_and_keeps_what_came(opened):
    adapter, engine = opened("vllm")
    whole = adapter.run([EngineRequest("a", (5, 6), 6, {"ignore_eos": True})]).outputs[0].samples[0]
    run = adapter.run([EngineRequest("a", (5, 6), 6, {"ignore_eos": True}, abort_after=2)])
    (sample,) = run.outputs[0].samples
    assert sample.token_ids == whole.token_ids[:2]
    assert sample.finish_reason == "abort"
    assert engine.bodies[-1]["stream"] is True


def test_several_answers_come_back(opened):
    adapter, _ = opened("vllm")
    (output,) = adapter.run([EngineRequest("a", (5,), 3, {"n": 2, "temperature": 1.0, "seed": 4})]).outputs
    assert len(output.samples) == 2
    assert output.samples[0] != output.samples[1]


@pytest.mark.parametrize("dialect", ["llama", "mlx"])
def test_ids_come_with_scores_that_were_not_asked_for(opened, dialect):
    adapter, _ = opened(dialect)
    (output,) = adapter.run([EngineRequest("a", (5, 6), 3)]).outputs
    assert 1 <= len(output.samples[0].token_ids) <= 3
    assert output.samples[0].logprobs is None


def test_text_is_compared_as_text(opened):
    adapter, engine = opened("text")
    (output,) = adapter.run([EngineRequest("a", (5, 6), 3)]).outputs
    assert engine.bodies[-1]["prompt"] == "5 6"
    assert all(code_point >= 0x4E00 for code_point in output.samples[0].token_ids)


def test_close_leaves_the_server_alone(opened):
    adapter, _ = opened("vllm")
    adapter.close()
    assert adapter.run([EngineRequest("a", (5,), 2)]).outputs

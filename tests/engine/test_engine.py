"""`LLMEngine` as callers see it: requests come and go while others run."""

from contextlib import suppress

import pytest

from oracle.invariants import check_core, check_drained
from refinfer import EngineConfig, LLMEngine, RequestOutput, SamplingParams
from refinfer.errors import (
    DuplicateRequestError,
    EmptyPromptError,
    PromptTooLongError,
    SamplingParamsError,
    UnknownRequestError,
)

GO_ON = SamplingParams(max_tokens=6, ignore_eos=True)


@pytest.fixture
def engine(make_llm, cache):
    """An engine of its own over a model that is loaded once."""
    llm = make_llm(cache=cache)
    return LLMEngine(llm.engine.loaded, EngineConfig(cache=cache))


def drain(engine):
    """The last word on every request."""
    last: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        last.update((output.request_id, output) for output in engine.step())
    return last


def test_step_tells_of_everybody_who_got_a_token(engine):
    engine.add_request("a", [5, 9], GO_ON)
    engine.add_request("b", [7], SamplingParams(max_tokens=2, ignore_eos=True))
    lengths = []
    while engine.has_unfinished_requests():
        lengths.append({output.request_id: len(output.outputs[0].token_ids) for output in engine.step()})
    assert lengths == [{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3}, {"a": 4}, {"a": 5}, {"a": 6}]


def test_request_that_comes_late_gets_what_it_gets_alone(engine):
    engine.add_request("alone", [7, 8, 9], GO_ON)
    alone = drain(engine)["alone"]
    engine.add_request("a", [5, 9], GO_ON)
    engine.step()
    engine.add_request("late", [7, 8, 9], GO_ON)
    assert drain(engine)["late"].outputs == alone.outputs


def test_abort_ends_a_request_and_gives_what_it_has(engine):
    engine.add_request("a", [5, 9], GO_ON)
    engine.add_request("b", [5, 9], GO_ON)
    engine.step()
    output = engine.abort_request("a")
    assert (output.finished, output.outputs[0].finish_reason, len(output.outputs[0].token_ids)) == (True, "abort", 1)
    assert not engine.is_unfinished("a")
    assert set(drain(engine)) == {"b"}
    assert engine.stats().num_running == engine.stats().num_waiting == engine.stats().num_used_blocks == 0


def test_engine_refuses_names_in_use_and_names_of_nobody(engine):
    engine.add_request("a", [5, 9], GO_ON)
    with pytest.raises(DuplicateRequestError, match="request id 'a' is in use"):
        engine.add_request("a", [7], GO_ON)
    with pytest.raises(UnknownRequestError, match="no unfinished request is named 'b'"):
        engine.abort_request("b")
    drain(engine)
    engine.add_request("a", [7], GO_ON)
    assert drain(engine)["a"].prompt_token_ids == [7]


@pytest.mark.parametrize(
    ("prompt", "params", "error"),
    [
        ([5] * 64, GO_ON, PromptTooLongError),
        ([], GO_ON, EmptyPromptError),
        ([5], SamplingParams(logit_bias={999: 1.0}), SamplingParamsError),
    ],
    ids=["too-long", "empty", "bias-of-no-token"],
)
def test_request_that_can_never_run_is_refused_beside_others_that_go_on(engine, prompt, params, error):
    engine.add_request("a", [5, 9], GO_ON)
    engine.step()
    with pytest.raises(error):
        engine.add_request("bad", prompt, params)
    assert not engine.is_unfinished("bad")
    assert len(drain(engine)["a"].outputs[0].token_ids) == 6


def test_greedy_samples_are_equal_and_drawn_ones_are_not(engine):
    engine.add_request("greedy", [5, 9, 2], SamplingParams(n=3, max_tokens=5, ignore_eos=True))
    drawn = SamplingParams(n=3, max_tokens=5, ignore_eos=True, temperature=2.0, seed=1)
    engine.add_request("drawn", [5, 9, 2], drawn)
    outputs = drain(engine)
    greedy = [answer.token_ids for answer in outputs["greedy"].outputs]
    assert greedy == [greedy[0]] * 3
    assert len({tuple(answer.token_ids) for answer in outputs["drawn"].outputs}) == 3
    assert [answer.index for answer in outputs["drawn"].outputs] == [0, 1, 2]


def test_fresh_seed_is_told_and_gives_the_same_tokens_again(engine):
    drawn = SamplingParams(max_tokens=8, ignore_eos=True, temperature=2.0)
    for name in "ab":
        engine.add_request(name, [5, 9], drawn)
    outputs = drain(engine)
    assert outputs["a"].seed != outputs["b"].seed
    again = SamplingParams(max_tokens=8, ignore_eos=True, temperature=2.0, seed=outputs["a"].seed)
    engine.add_request("again", [5, 9], again)
    assert drain(engine)["again"].outputs == outputs["a"].outputs


def test_stop_string_across_tokens_is_never_shown_while_it_may_begin(engine):
    engine.add_request("plain", [5, 9], SamplingParams(max_tokens=12, ignore_eos=True))
    text = drain(engine)["plain"].outputs[0].text
    stop = text[2:5]
    engine.add_request("stopped", [5, 9], SamplingParams(max_tokens=12, ignore_eos=True, stop=stop))
    end = text.index(stop)
    while engine.has_unfinished_requests():
        for output in engine.step():
            answer = output.outputs[0]
            assert text[:end].startswith(answer.text), "what was shown stays"
    assert (answer.text, answer.finish_reason, answer.stop_reason) == (text[:end], "stop", stop)


def test_prompt_logprobs_are_those_of_the_output_logprobs_before(engine):
    """What a token's log-probability was when it came out is what it is when it stands in a prompt."""
    engine.add_request("a", [5, 9], SamplingParams(max_tokens=5, ignore_eos=True, logprobs=2))
    answer = drain(engine)["a"].outputs[0]
    params = SamplingParams(max_tokens=1, ignore_eos=True, prompt_logprobs=2)
    for name in ("b", "with its prefix cached"):
        engine.add_request(name, [5, 9, *answer.token_ids], params)
        found = drain(engine)[name].prompt_logprobs
        assert (len(found), found[0]) == (7, None)
        for own, expected in zip(found[2:], answer.logprobs, strict=True):
            assert {token_id: entry.rank for token_id, entry in own.items()} == {
                token_id: entry.rank for token_id, entry in expected.items()
            }
            assert all(own[token_id].logprob == pytest.approx(expected[token_id].logprob) for token_id in own)
    assert answer.cumulative_logprob == pytest.approx(
        sum(entry[token_id].logprob for entry, token_id in zip(answer.logprobs, answer.token_ids, strict=True))
    )


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["schedule", "advance", "finish"])
def test_step_that_is_interrupted_is_all_that_is_lost(engine, monkeypatch, place):
    """Also where requests have come to their end in it: the next step tells of them."""
    params = SamplingParams(n=2, max_tokens=3, ignore_eos=True, logprobs=1, prompt_logprobs=1)
    engine.add_request("undisturbed", [5, 9, 2], params)
    expected = drain(engine)["undisturbed"]
    engine.add_request("a", [5, 9, 2], params)
    told = []
    for _ in range(2):
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(engine.core.scheduler, place, interrupt)
            told += engine.step()
        assert engine.is_unfinished("a")
        check_core(engine.core)
        told += engine.step()
    told += drain(engine).values()
    assert [output.finished for output in told] == [False] * (len(told) - 1) + [True]
    last = told[-1]
    assert (last.outputs, last.prompt_logprobs) == (expected.outputs, expected.prompt_logprobs)
    check_drained(engine.core)


def test_abort_and_add_that_are_interrupted_can_be_called_again(engine, monkeypatch):
    engine.add_request("a", [5, 9], GO_ON)
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(engine.core.scheduler, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.abort_request("a")
    assert engine.abort_request("a").outputs[0].finish_reason == "abort"
    with monkeypatch.context() as patch:
        patch.setattr(engine.core._latencies, "arrive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.add_request("a", [5, 9], GO_ON)
    assert not engine.has_unfinished_requests()
    engine.add_request("a", [5, 9], GO_ON)
    assert len(drain(engine)["a"].outputs[0].token_ids) == 6
    check_drained(engine.core)

"""What vLLM gave is handed on as it is, sample by sample."""

from types import SimpleNamespace

import pytest

from oracle.engines.adapters.vllm_outputs import Answers, sample_of
from oracle.engines.messages import EngineRequest


def item(logprob, rank):
    return SimpleNamespace(logprob=logprob, rank=rank)


def completion(token_ids=(5,), index=0, finish_reason=None, stop_reason=None, logprobs=None):
    return SimpleNamespace(
        token_ids=list(token_ids), index=index, finish_reason=finish_reason, stop_reason=stop_reason, logprobs=logprobs
    )


def output(request_id, *samples, prompt_logprobs=None):
    return SimpleNamespace(request_id=request_id, outputs=list(samples), prompt_logprobs=prompt_logprobs)


def test_the_last_state_of_each_sample_stands():
    answers = Answers()
    answers.take([output("a", completion((5,), 1)), output("a", completion((6,), 0))])
    answers.take([output("a", completion((5, 7), 1, "length"))])
    answers.take([output("a", completion((6, 8), 0, "stop", 8))])
    samples = answers.output_of(EngineRequest("a", (1,), 2, {"n": 2})).samples
    assert [(sample.token_ids, sample.finish_reason, sample.stop_token_id) for sample in samples] == [
        ((6, 8), "stop", 8),
        ((5, 7), "length", None),
    ]


def test_take_counts_samples():
    assert Answers().take([output("a", completion(), completion(index=1)), output("b", completion())]) == 3


def test_logprobs_are_those_of_the_tokens_that_came():
    entries = [{5: item(-1.0, 3), 9: item(-0.5, 1), 8: item(-0.7, 2)}]
    sample = sample_of(completion(logprobs=entries), {"logprobs": 2}, is_aborted=False)
    assert sample.logprobs == (-1.0,)
    assert sample.top_logprobs == ({9: -0.5, 8: -0.7},)
    assert sample.logits is None


def test_no_likeliest_tokens_are_listed_where_none_were_asked_for():
    sample = sample_of(completion(logprobs=[{5: item(-1.0, 1)}]), {"logprobs": 0}, is_aborted=False)
    assert sample.top_logprobs == ({},)


def test_logits_are_listed_by_token():
    entries = [{1: item(0.25, 2), 0: item(4.0, 1), 2: item(-1.0, 3)}]
    sample = sample_of(completion((0,), logprobs=entries), {"logits": True}, is_aborted=False)
    assert sample.logits == ((4.0, 0.25, -1.0),)
    assert sample.logprobs is None


@pytest.mark.parametrize(("finish_reason", "expected"), [(None, "abort"), ("length", "length")])
def test_only_an_aborted_sample_that_had_not_ended_says_abort(finish_reason, expected):
    assert sample_of(completion(finish_reason=finish_reason), {}, is_aborted=True).finish_reason == expected


def test_prompt_logprobs_are_kept_from_the_output_that_had_them():
    answers = Answers()
    answers.take([output("a", completion(), prompt_logprobs=[None, {3: item(-2.0, 1)}])])
    answers.take([output("a", completion((5, 6)))])
    assert answers.output_of(EngineRequest("a", (1, 3), 2)).prompt_logprobs == (None, {3: -2.0})


def test_a_refused_request_gives_the_words():
    answers = Answers()
    answers.refuse("a", "no")
    assert answers.output_of(EngineRequest("a", (1,), 2)).refused == "no"


@pytest.mark.parametrize(
    ("token_ids", "finish_reason", "expected"),
    [((5,), None, False), ((5, 6), None, True), ((5, 6, 7), None, True), ((5, 6), "length", False)],
)
def test_a_request_is_to_be_aborted_once_it_has_so_many_tokens(token_ids, finish_reason, expected):
    answers = Answers()
    request = EngineRequest("a", (1,), 9, abort_after=2)
    answers.take([output("a", completion(token_ids, finish_reason=finish_reason))])
    assert answers.is_to_be_aborted(request) is expected
    answers.abort("a")
    assert not answers.is_to_be_aborted(request)


def test_a_request_without_tokens_is_not_aborted():
    assert not Answers().is_to_be_aborted(EngineRequest("a", (1,), 9, abort_after=1))


def test_samples_that_had_not_begun_are_aborted_as_well():
    answers = Answers()
    answers.take([output("a", completion((5, 6)))])
    answers.abort("a")
    samples = answers.output_of(EngineRequest("a", (1,), 9, {"n": 2}, abort_after=2)).samples
    assert [(sample.token_ids, sample.finish_reason) for sample in samples] == [((5, 6), "abort"), ((), "abort")]

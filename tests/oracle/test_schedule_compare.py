"""Every difference between a schedule and a request alone is seen."""

from dataclasses import replace
from typing import Any

import pytest

from oracle.errors import OutcomeMismatch
from oracle.lone_answer import SampleRun
from oracle.sampling_spec import SamplingSpec
from oracle.schedule_compare import check_stop_strings, check_whole_text, compare_sample
from oracle.symbolic import SymbolicTokenizer
from refinfer.engine.output import CompletionOutput, Logprob

OUTPUT = CompletionOutput(
    0, "ab", [0, 1], -1.0, [{0: Logprob(-0.5, 1, "a")}, {1: Logprob(-0.5, 1, "b")}], "length", None
)
RUN = SampleRun(OUTPUT, [None, {0: Logprob(-0.5, 1, "a")}], ())
OTHERS: dict[str, Any] = {
    "token_ids": [0, 2],
    "text": "ac",
    "cumulative_logprob": -1.0000000000000002,
    "logprobs": None,
    "finish_reason": "stop",
    "stop_reason": 1,
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_difference_is_seen(name):
    with pytest.raises(OutcomeMismatch, match=f"what: {name} is"):
        compare_sample(replace(RUN, output=replace(OUTPUT, **{name: OTHERS[name]})), RUN, "what")


def test_an_aborted_sample_is_a_beginning():
    begun = replace(OUTPUT, token_ids=[0], logprobs=(OUTPUT.logprobs or [])[:1], text="a", finish_reason="abort")
    compare_sample(SampleRun(begun, [None], ()), RUN, "what")
    with pytest.raises(OutcomeMismatch, match="token_ids"):
        compare_sample(SampleRun(replace(begun, token_ids=[1]), [None], ()), RUN, "what")


@pytest.mark.parametrize(("text", "stop"), [("a", None), ("a", "c"), ("abb", None)])
def test_text_that_is_not_the_tokens_is_seen(text, stop):
    with pytest.raises(OutcomeMismatch, match="was streamed"):
        check_whole_text(replace(RUN, output=replace(OUTPUT, text=text, stop_reason=stop)), SymbolicTokenizer(), "what")


def test_text_before_a_stop_string_is_whole():
    check_whole_text(replace(RUN, output=replace(OUTPUT, text="a", stop_reason="b")), SymbolicTokenizer(), "what")


@pytest.mark.parametrize(
    ("token_ids", "text", "stop", "min_tokens", "is_fine"),
    [
        ([0, 1], "a", "b", 0, True),
        ([0, 1], "a", "b", 1, True),
        ([0, 1], "a", "b", 2, False),  # ended with the second token, where two have to come before
        ([0, 1], "ab", None, 0, False),
        ([0, 1], "ab", None, 1, False),
        ([0, 1], "ab", None, 2, True),
        ([1, 0, 1], "bab", None, 1, False),
        ([1, 1, 0], "bba", None, 2, True),
        ([4, 1], "\ufffdb", None, 1, False),
    ],
)
def test_stop_string_ends_a_text_with_more_than_the_fewest_tokens_and_no_later(
    token_ids, text, stop, min_tokens, is_fine
):
    output = replace(
        OUTPUT, token_ids=token_ids, text=text, stop_reason=stop, finish_reason="stop" if stop else "length"
    )
    params = SamplingSpec(stop=("b",), min_tokens=min_tokens).params(9, ignore_eos=True)
    own = replace(RUN, output=output)
    if is_fine:
        check_stop_strings(own, params, SymbolicTokenizer(), "what")
        return
    with pytest.raises(OutcomeMismatch, match=r"past the stop string 'b'|stop string 'b' ended 2 tokens, min_tokens 2"):
        check_stop_strings(own, params, SymbolicTokenizer(), "what")

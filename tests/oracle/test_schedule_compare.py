"""Every difference between a schedule and a request alone is seen."""

from dataclasses import replace
from typing import Any

import pytest

from oracle.errors import OutcomeMismatch
from oracle.lone_answer import SampleRun
from oracle.schedule_compare import check_whole_text, compare_sample
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

"""Did a request give in a schedule what it gives alone? Bit for bit, and a beginning of it where it was aborted."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from oracle.drive import DrivenRequest
from oracle.errors import OutcomeMismatch
from oracle.lone_answer import SampleRun
from refinfer.sampling import SamplingParams
from refinfer.tokenizer import Tokenizer

FIELDS = ("token_ids", "logprobs", "cumulative_logprob", "text", "finish_reason", "stop_reason", "prompt_logprobs")
"""All that a sample gives and that nothing around it may change."""

_FIELDS_BEGUN = ("token_ids", "logprobs", "prompt_logprobs")
"""Those that grow with the tokens, of which an aborted sample has a beginning."""


def compare_request(
    driven: DrivenRequest, expected: Sequence[SampleRun], tokenizer: Tokenizer | None, what: str
) -> None:
    """Holds every sample of a request to what it gives alone.

    Raises:
        OutcomeMismatch: Something differs.
    """
    samples = driven.samples()
    if len(samples) != len(expected):
        message = f"{what}: {len(samples)} answers came, and {len(expected)} were asked for"
        raise OutcomeMismatch(message)
    for index, (own, alone) in enumerate(zip(samples, expected, strict=True)):
        compare_sample(own, alone, f"{what}, sample {index}")
        check_whole_text(own, tokenizer, f"{what}, sample {index}")
        check_stop_strings(own, driven.request.params, tokenizer, f"{what}, sample {index}")


def compare_sample(own: SampleRun, expected: SampleRun, what: str) -> None:
    """Holds one sample to what it gives alone.

    Raises:
        OutcomeMismatch: Something differs.
    """
    compare_fields(own, expected, FIELDS, what)


def compare_fields(own: SampleRun, expected: SampleRun, names: Sequence[str], what: str) -> None:
    """Holds some of what a sample gave to what it gives alone; of an aborted one a beginning, where it has one.

    Args:
        own: What it gave.
        expected: What it gives alone.
        names: Which fields, of `FIELDS`.
        what: How messages name the sample.

    Raises:
        OutcomeMismatch: One differs.
    """
    is_aborted = own.output.finish_reason == "abort"
    for name in names:
        if not is_aborted:
            _check_equal(_field(own, name), _field(expected, name), f"{what}: {name}")
        elif name in _FIELDS_BEGUN:
            _check_beginning(_field(own, name), _field(expected, name), f"{what}, aborted: {name}")


def _field(run: SampleRun, name: str) -> Any:
    return run.prompt_logprobs if name == "prompt_logprobs" else getattr(run.output, name)


def check_whole_text(own: SampleRun, tokenizer: Tokenizer | None, what: str) -> None:
    """Holds streamed text to all tokens decoded at once; a stop string and what follows it are left out.

    Raises:
        OutcomeMismatch: They differ.
    """
    if tokenizer is None:
        _check_equal(own.output.text, None, f"{what}: text without a tokenizer")
        return
    whole, text = tokenizer.decode(own.output.token_ids), own.output.text or ""
    stop = own.output.stop_reason
    is_cut = isinstance(stop, str)
    if (is_cut and not whole.startswith(text + str(stop))) or (not is_cut and whole != text):
        message = f"{what}: text {text!r} was streamed, and its tokens decode to {whole!r} (stop reason {stop!r})"
        raise OutcomeMismatch(message, text=text, whole=whole)


def check_stop_strings(own: SampleRun, params: SamplingParams, tokenizer: Tokenizer | None, what: str) -> None:
    """Holds text to holding no stop string, wherever one would have ended it.

    What `min_tokens` tokens complete is text like any other, and beside a token that ends the request it is too; more
    tokens than those, counted here once more, have to be there before a stop string can end it.

    Raises:
        OutcomeMismatch: It holds one, or was ended by one too early.
    """
    output = own.output
    stop, text = output.stop_reason, output.text
    if isinstance(stop, str) and len(output.token_ids) <= params.min_tokens:
        message = f"{what}: stop string {stop!r} ended {len(output.token_ids)} tokens, min_tokens {params.min_tokens}"
        raise OutcomeMismatch(message, stop_string=stop)
    ends_by_token = output.finish_reason == "stop" and not isinstance(stop, str)
    if ends_by_token or text is None or tokenizer is None:
        return
    early = tokenizer.decode(output.token_ids[: params.min_tokens])
    num_settled = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(early, text, strict=False)))
    for stop_string in params.stop_strings:
        if text.find(stop_string, max(0, num_settled - len(stop_string) + 1)) >= 0:
            message = f"{what}: text {text!r} was streamed past the stop string {stop_string!r}"
            raise OutcomeMismatch(message, text=text, stop_string=stop_string)


def _check_beginning(own: Any, expected: Any, what: str) -> None:
    if own is not None and expected is not None:
        expected = expected[: len(own)]
    _check_equal(own, expected, what)


def _check_equal(own: Any, expected: Any, what: str) -> None:
    if own != expected:
        message = f"{what} is {own!r}; alone, without a cache, it is {expected!r}"
        raise OutcomeMismatch(message, own=own, expected=expected)

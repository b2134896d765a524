"""Decides whether a request ends with the token it got."""

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum

from refinfer.sampling.params import SamplingParams


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a request.

    Attributes:
        reason: Why it ended.
        stop_reason: The stop token or stop string that ended it; None for an end-of-sequence token or another reason.
    """

    reason: FinishReason
    stop_reason: int | str | None = None


def can_stop(num_output_tokens: int, params: SamplingParams) -> bool:
    """Tells whether the newest output token may end the request otherwise than by length.

    As in vLLM: `min_tokens` others come before it, so no earlier token can complete a stop string either. What it
    completes may have begun before.

    Args:
        num_output_tokens: Output tokens of the request, the newest included.
        params: The request's parameters.
    """
    return num_output_tokens > params.min_tokens


def finish(
    *,
    token_id: int,
    num_output_tokens: int,
    num_tokens: int,
    params: SamplingParams,
    eos_token_ids: Container[int],
    max_model_len: int,
) -> Finish | None:
    """Gives the end that a token brings, or None to go on; stop strings are for `StopStringWatcher` to find.

    An end-of-sequence token comes first, then a stop token, then the two lengths.

    Args:
        token_id: The newest output token.
        num_output_tokens: Output tokens of the request, the newest included.
        num_tokens: Prompt and output tokens, the newest included.
        params: The request's parameters.
        eos_token_ids: End-of-sequence ids of the model.
        max_model_len: Longest request in tokens, prompt and output together.
    """
    if can_stop(num_output_tokens, params):
        if token_id in eos_token_ids and not params.ignore_eos:
            return Finish(FinishReason.STOP)
        if token_id in params.stop_token_id_set:
            return Finish(FinishReason.STOP, stop_reason=token_id)
    if num_output_tokens == params.max_tokens or num_tokens >= max_model_len:
        return Finish(FinishReason.LENGTH)
    return None

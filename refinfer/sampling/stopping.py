"""Decides whether a request ends with the token it got."""

from collections.abc import Container
from enum import StrEnum

from refinfer.sampling.params import SamplingParams


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"


def finish_reason(
    *,
    token_id: int,
    num_output_tokens: int,
    num_tokens: int,
    params: SamplingParams,
    eos_token_ids: Container[int],
    max_model_len: int,
) -> FinishReason | None:
    """Gives the reason to end after a token, or None to go on.

    Args:
        token_id: The newest output token.
        num_output_tokens: Output tokens of the request, the newest included.
        num_tokens: Prompt and output tokens, the newest included.
        params: The request's parameters.
        eos_token_ids: End-of-sequence ids of the model.
        max_model_len: Longest request in tokens, prompt and output together.
    """
    if token_id in eos_token_ids and not params.ignore_eos:
        return FinishReason.STOP
    if num_output_tokens == params.max_tokens or num_tokens >= max_model_len:
        return FinishReason.LENGTH
    return None

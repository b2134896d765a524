"""Which requests does the teaching engine take? What cannot work is refused in words, before anything runs."""

import math
from collections.abc import Callable
from typing import Any

from oracle.engines.messages import EngineRequest


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_bias(value: object) -> bool:
    pairs = value if isinstance(value, list | tuple) else [None]
    return all(
        isinstance(pair, list | tuple)
        and len(pair) == len(("id", "bias"))
        and _is_count(pair[0])
        and _is_number(pair[1])
        for pair in pairs
    )


def _are_ids(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_count, value))


LEGAL_BY_PARAMETER: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "temperature": ("a number of at least 0", lambda value: _is_number(value) and value >= 0),
    "top_k": ("a whole number of at least 0", _is_count),
    "seed": ("None, or a whole number of at least 0", lambda value: value is None or _is_count(value)),
    "n": ("a whole number of at least 1", lambda value: _is_count(value, 1)),
    "repetition_penalty": ("a number above 0", lambda value: _is_number(value) and value > 0),
    "logit_bias": ("None, or pairs of token id and number", lambda value: value is None or _is_bias(value)),
    "min_tokens": ("a whole number of at least 0", _is_count),
    "ignore_eos": ("true or false", lambda value: isinstance(value, bool)),
    "stop_token_ids": ("None, or token ids", lambda value: value is None or _are_ids(value)),
    "logprobs": ("None, or a whole number of at least 0", lambda value: value is None or _is_count(value)),
    "logits": ("true or false", lambda value: isinstance(value, bool)),
    "cache_salt": ("None, or a text", lambda value: value is None or isinstance(value, str)),
}
"""The parameters that are taken, each with what its value has to be."""


def fault_of(request: EngineRequest, vocab_size: int, max_model_len: int) -> str | None:
    """Tells why a request cannot be taken; None where it can."""
    return (
        _fault_of_parameters(request.parameters)
        or _fault_of_lengths(request, max_model_len)
        or _fault_of_ids(request, vocab_size)
    )


def _fault_of_parameters(parameters: dict[str, Any]) -> str | None:
    for name, value in parameters.items():
        if name not in LEGAL_BY_PARAMETER:
            return f"{name} is none of {', '.join(LEGAL_BY_PARAMETER)}"
        words, is_legal = LEGAL_BY_PARAMETER[name]
        if not is_legal(value):
            return f"{name} is {value!r}; it must be {words}"
    return None


def _fault_of_lengths(request: EngineRequest, max_model_len: int) -> str | None:
    num_prompt_tokens, max_tokens = len(request.prompt_token_ids), request.max_tokens
    if not num_prompt_tokens or not _is_count(max_tokens, 1):
        return f"there are {num_prompt_tokens} prompt tokens and {max_tokens} to come; both must be at least 1"
    if num_prompt_tokens + max_tokens > max_model_len:
        return f"{num_prompt_tokens} prompt tokens and {max_tokens} to come are more than {max_model_len}"
    if request.parameters.get("min_tokens", 0) > max_tokens:
        return f"min_tokens is {request.parameters['min_tokens']}, more than max_tokens, which is {max_tokens}"
    return None


def _fault_of_ids(request: EngineRequest, vocab_size: int) -> str | None:
    biased = [token_id for token_id, _ in request.parameters.get("logit_bias") or ()]
    for token_id in (*request.prompt_token_ids, *biased, *(request.parameters.get("stop_token_ids") or ())):
        if not _is_count(token_id) or token_id >= vocab_size:
            return f"token id {token_id!r} is none of the {vocab_size} of the vocabulary"
    return None

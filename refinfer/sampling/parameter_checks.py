"""Which values may a sampling parameter take, and in which form is it kept?"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from refinfer.config.plain_values import as_plain
from refinfer.errors import SamplingParamsError

NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "temperature": ("at least 0", lambda value: value >= 0),
    "top_p": ("above 0 and at most 1", lambda value: 0 < value <= 1),
    "min_p": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "repetition_penalty": ("above 0", lambda value: value > 0),
    "presence_penalty": ("from -2 to 2", lambda value: -2 <= value <= 2),  # noqa: PLR2004 (as OpenAI and vLLM)
    "frequency_penalty": ("from -2 to 2", lambda value: -2 <= value <= 2),  # noqa: PLR2004 (as OpenAI and vLLM)
}
"""For each parameter that is a number: its range in words, and as a question."""

COUNTS: dict[str, tuple[int, bool]] = {
    "n": (1, False),
    "max_tokens": (1, True),
    "min_tokens": (0, False),
    "logprobs": (0, True),
    "prompt_logprobs": (0, True),
}
"""For each parameter that counts: its least value, and whether None may stand instead."""

_NUM_SEEDS = 2**64


class LogitBias(Mapping[int, float]):
    """A mapping from token ids to biases that can no longer change, and therefore has a hash."""

    def __init__(self, bias_by_token_id: Mapping[int, float]) -> None:
        self._bias_by_token_id = dict(bias_by_token_id)

    def __getitem__(self, token_id: int) -> float:
        return self._bias_by_token_id[token_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._bias_by_token_id)

    def __len__(self) -> int:
        return len(self._bias_by_token_id)

    def __hash__(self) -> int:
        return hash(frozenset(self._bias_by_token_id.items()))

    def __repr__(self) -> str:
        return repr(self._bias_by_token_id)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def number_within(name: str, value: object, words: str, is_within: Callable[[float], bool] = math.isfinite) -> float:
    """Gives a finite number as a float.

    Raises:
        SamplingParamsError: The value is no number, not finite, or out of range; the message has `words` as the limit.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # a whole number beyond what a float holds
            number = math.inf
        if math.isfinite(number) and is_within(number):
            return number
    message = f"{name} is {value!r}; it must be {words}"
    raise SamplingParamsError(message, **{name: value})


def check_count(name: str, value: Any, least: int, *, is_optional: bool) -> None:
    """Refuses what does not count anything.

    Raises:
        SamplingParamsError: The value is no whole number, or below `least`.
    """
    if value is None and is_optional:
        return
    if not _is_whole(value) or value < least:
        message = f"{name} is {value!r}; it must be a whole number of at least {least}{', or None' * is_optional}"
        raise SamplingParamsError(message, **{name: value})


def check_top_k(value: Any) -> None:
    """Refuses what is neither a number of tokens nor 0 or -1, which users of vLLM write for all tokens.

    Raises:
        SamplingParamsError: The value is no whole number, or below -1.
    """
    if not _is_whole(value) or value < -1:
        message = f"top_k is {value!r}; it must be a whole number of at least 1, or 0 or -1 to take all tokens"
        raise SamplingParamsError(message, top_k=value)


def check_seed(value: Any) -> None:
    """Refuses a seed that does not fit the 64 bits that a generator is keyed with.

    Raises:
        SamplingParamsError: The value is neither a whole number in range nor None.
    """
    if value is not None and not (_is_whole(value) and 0 <= value < _NUM_SEEDS):
        message = f"seed is {value!r}; it must be a whole number from 0 to 2**64 - 1, or None for a fresh one"
        raise SamplingParamsError(message, seed=value)


def frozen_bias(value: object) -> LogitBias | None:
    """Gives biases by token id as a mapping with a hash, or None where there are none.

    Raises:
        SamplingParamsError: The value is no mapping, an id is none, or a bias is not finite; minus infinity is
            refused too, since it could mask every token.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        message = f"logit_bias is {value!r}; it must map token ids to numbers, or be None"
        raise SamplingParamsError(message, logit_bias=value)
    token_ids = whole_token_ids("logit_bias", list(value))
    biases = [number_within("logit_bias", as_plain(bias), "finite for every token id") for bias in value.values()]
    bias = dict(zip(token_ids, biases, strict=True))
    return LogitBias(bias) if bias else None


def listed_stop_strings(value: Any) -> tuple[str, ...]:
    """Gives one string, several or none as a tuple.

    Raises:
        SamplingParamsError: A string is empty, so that it would stop everything, or it is no string.
    """
    strings = (value,) if isinstance(value, str) else () if value is None else value
    is_list = isinstance(strings, Sequence) and not isinstance(strings, bytes | bytearray)
    if not is_list or not all(isinstance(string, str) and string for string in strings):
        message = f"stop is {value!r}; it must be a string or a list of strings, none of them empty, or None"
        raise SamplingParamsError(message, stop=value)
    return tuple(strings)


def whole_token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Gives token ids as a tuple; that they lie in the vocabulary is for `check_vocabulary` to say.

    Raises:
        SamplingParamsError: The value is no list, or an id is no whole number of at least 0.
    """
    token_ids = () if value is None else value
    is_list = isinstance(token_ids, Sequence) and not isinstance(token_ids, str | bytes | bytearray)
    token_ids = [as_plain(token_id) for token_id in token_ids] if is_list else ()
    if not is_list or not all(_is_whole(token_id) and token_id >= 0 for token_id in token_ids):
        message = f"{name} is {value!r}; its token ids must be whole numbers of at least 0"
        raise SamplingParamsError(message, **{name: value})
    return tuple(token_ids)

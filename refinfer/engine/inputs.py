"""In which forms may prompts, parameters and conversations come? Each is brought into one, or refused by name."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from operator import index
from reprlib import repr as shortened
from typing import Any, SupportsIndex, TypeGuard

import numpy as np
import torch

from refinfer.config.plain_values import as_plain, meant
from refinfer.errors import RequestError, TokenIdError
from refinfer.sampling import SamplingParams

Prompt = str | Sequence[SupportsIndex] | Mapping[str, object] | np.ndarray | torch.Tensor
"""A text, or token ids: a list, an array or a tensor of one dimension; or {"prompt": …}, {"prompt_token_ids": …}."""

Prompts = Prompt | Iterable[Prompt]
"""One prompt, or several: a list, a generator, or an array of which each row is a prompt."""

Params = SamplingParams | Iterable[SamplingParams] | None
"""Sampling parameters for all prompts, or for each."""

_TEXT, _TOKEN_IDS = "prompt", "prompt_token_ids"
_PARAMS = "params"
_NO_LISTS = (str, bytes, bytearray, memoryview, Mapping, AbstractSet)


def list_prompts(prompts: object) -> list[object]:
    """Return prompts as a list, in which one alone is the only one; whole numbers at the top are one prompt."""
    plain = as_plain(prompts)
    if isinstance(plain, str) or not _is_listing(plain):
        return [plain]
    listed = list(plain)
    is_one = bool(listed) and isinstance(as_plain(listed[0]), int | float)
    return [listed] if is_one else listed


def list_params(params: object, num_prompts: int) -> list[SamplingParams]:
    """Return the parameters of each prompt.

    Raises:
        RequestError: They are neither one for all nor one for each, or are no `SamplingParams`.
    """
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    listed: list[Any] = list(params) if _is_listing(params) else [params]
    for own in listed:
        check_params(own)
    if len(listed) != num_prompts:
        message = (
            f"{num_prompts} prompts were given with {len(listed)} sampling parameters; give one for all or one for each"
        )
        raise RequestError(message, num_prompts=num_prompts, num_params=len(listed))
    return listed


def check_params(params: object) -> None:
    """Refuse what is no `SamplingParams`.

    Raises:
        RequestError: The value is something else.
    """
    if not isinstance(params, SamplingParams):
        message = f"params has {shortened(params)}; give SamplingParams(…)"
        raise RequestError(message, params=params)


def list_conversations(messages: object) -> list[object]:
    """Return conversations as a list, in which one alone is the only one."""
    if isinstance(messages, str) or not _is_listing(messages):
        return [messages]
    listed = list(messages)
    return [listed] if listed and isinstance(listed[0], Mapping) else listed


def read_prompt(prompt: object, name: str) -> str | list[int]:
    """Return a prompt as a text, or as token ids that are plain integers.

    Args:
        prompt: A prompt in any form.
        name: How messages name it.

    Raises:
        RequestError: It has none of the forms, or a token id is no whole number.
    """
    plain = as_plain(prompt)
    if isinstance(plain, Mapping):
        return _read_mapping(plain, name)
    if isinstance(plain, str):
        return plain
    if not _is_listing(plain):
        message = f"{name} is {shortened(plain)}; give a text or a list of token ids"
        raise RequestError(message, name=name, prompt=prompt)
    return [_token_id(token_id, name) for token_id in plain]


def _read_mapping(prompt: Mapping[str, object], name: str) -> str | list[int]:
    value = as_plain(next(iter(prompt.values()), None))
    is_text = list(prompt) == [_TEXT] and isinstance(value, str)
    is_ids = list(prompt) == [_TOKEN_IDS] and _is_listing(value)
    if not is_text and not is_ids:
        message = (
            f"{name} is {shortened(dict(prompt))}; give {{{_TEXT!r}: a text}} or {{{_TOKEN_IDS!r}: a list of ids}}, "
            "and nothing beside it"
        )
        raise RequestError(message, name=name, prompt=prompt)
    return read_prompt(value, name)


def _is_listing(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether values can be taken from it in an order that means something, and it is neither text nor bytes."""
    return isinstance(value, Iterable) and not isinstance(value, _NO_LISTS)


def _token_id(value: object, name: str) -> int:
    """Return a token id as a plain integer; one that is not whole would fail in the middle of a step."""
    plain = as_plain(value)
    if isinstance(plain, int) and not isinstance(plain, bool):
        return index(plain)
    if _is_listing(plain):
        message = f"{name} has {shortened(plain)} where a token id belongs; give the ids of one prompt in one flat list"
    else:
        message = f"{name} has token id {shortened(plain)}; token ids are whole numbers"
    raise TokenIdError(message, name=name, token_id=value)


def refuse_unknown(method: str, unknown: Mapping[str, object], known: Sequence[str]) -> None:
    """Refuse arguments that a method does not have, with the one that was probably meant.

    Args:
        method: The method's name, for the message.
        unknown: Arguments by name.
        known: Names of the arguments that it has.

    Raises:
        RequestError: There is an argument.
    """
    for name, value in unknown.items():
        inside = {field.name: f"{_PARAMS}=SamplingParams({field.name}=…)" for field in fields(SamplingParams)}
        question = meant(name, [*known, *inside])
        for word, written in inside.items():
            question = question.replace(f" {word}?", f" {written}?")
        message = f"{method} has no argument {name}={shortened(value)}; {question}it takes {', '.join(known)}"
        raise RequestError(message, argument=name, value=value)

"""How does a request of the harness read in vLLM's words? Plain translation, without vLLM itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from oracle.engines.adapters.vllm_tokenizer import text_of

_SAME_NAME = (
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "n",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "allowed_token_ids",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
    "prompt_logprobs",
)
"""Parameters that `SamplingParams` knows by the same name, with the same meaning."""

_ELSEWHERE = ("temperature", "logit_bias", "bad_token_sequences", "logits", "choices", "priority", "cache_salt")
"""Parameters that have another name or form, or are not of `SamplingParams`."""


def sampling_arguments(parameters: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Gives the arguments of `SamplingParams`, but for `structured_outputs`.

    Args:
        parameters: What the request asks for.
        max_tokens: Most output tokens.

    Raises:
        ValueError: vLLM has no such parameter.
    """
    unknown = sorted(set(parameters) - set(_SAME_NAME) - set(_ELSEWHERE))
    if unknown:
        message = f"vLLM has no parameter {', '.join(unknown)}"
        raise ValueError(message)
    arguments = {name: parameters[name] for name in _SAME_NAME if name in parameters}
    # vLLM's own default is to draw, with temperature 1.
    arguments |= {"temperature": parameters.get("temperature", 0.0), "max_tokens": max_tokens, "detokenize": False}
    if parameters.get("logit_bias") is not None:
        arguments["logit_bias"] = biases_by_token(parameters["logit_bias"])
    if parameters.get("bad_token_sequences") is not None:
        arguments["bad_words"] = [text_of(sequence) for sequence in parameters["bad_token_sequences"]]
    if parameters.get("logits"):
        arguments["logprobs"] = -1
    return arguments


def biases_by_token(pairs: Sequence[Sequence[Any]]) -> dict[int, float]:
    """Gives biases as vLLM takes them, one for each token.

    Raises:
        ValueError: A token has two.
    """
    biases = {int(token_id): float(value) for token_id, value in pairs}
    if len(biases) != len(pairs):
        message = "vLLM takes one bias for each token"
        raise ValueError(message)
    return biases


def choice_texts(parameters: Mapping[str, Any]) -> list[str] | None:
    """Gives the texts that stand for the choices of a request; None where it has none."""
    choices = parameters.get("choices")
    return None if choices is None else [text_of(choice) for choice in choices]


def prompt_of(token_ids: tuple[int, ...], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Gives a prompt as vLLM takes it."""
    salt = parameters.get("cache_salt")
    return {"prompt_token_ids": list(token_ids), **({} if salt is None else {"cache_salt": salt})}

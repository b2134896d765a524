"""How do a request's parameters become a chain of llama.cpp's samplers?"""

import math
from collections.abc import Sequence
from typing import Any

import llama_cpp

WINDOW = 4096
"""How many of the last tokens penalties look at: more than any request has."""

PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "allowed_token_ids",
)

ORDER = ("allowed_token_ids", "logit_bias", "repetition_penalty", "frequency_penalty", "top_k", "top_p", "min_p")
"""As the chain below has them; temperature comes before the filters."""


class SamplerChain:
    """A chain of samplers for one answer.

    Args:
        parameters: What the request asks for.
        prompt: Its prompt, which the repetition penalty counts.
        vocab_size: Number of token ids.
        seed: What the draws come from.

    Raises:
        ValueError: The library makes none of the samplers.
    """

    def __init__(self, parameters: dict[str, Any], prompt: Sequence[int], vocab_size: int, seed: int) -> None:
        self._chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        self._vocab_size = vocab_size
        self._add_biases(parameters)
        self._add_penalties(parameters, prompt)
        self._add_choice(parameters, seed)

    def sample(self, context: Any, place: int) -> int:
        """Chooses a token by the logits at a place of the last batch; the chain keeps it in mind."""
        return int(llama_cpp.llama_sampler_sample(self._chain, context, place))

    def close(self) -> None:
        """Lets go of it."""
        llama_cpp.llama_sampler_free(self._chain)

    def _add(self, name: str, sampler: Any) -> None:
        if not sampler:
            message = f"llama.cpp makes no sampler of this {name}"
            raise ValueError(message)
        llama_cpp.llama_sampler_chain_add(self._chain, sampler)

    def _add_biases(self, parameters: dict[str, Any]) -> None:
        allowed = parameters.get("allowed_token_ids")
        if allowed is not None and not set(allowed) <= set(range(self._vocab_size)):
            message = f"allowed_token_ids has ids outside of a vocabulary of {self._vocab_size}"
            raise ValueError(message)
        barred = set() if allowed is None else set(range(self._vocab_size)) - set(allowed)
        pairs = [(token_id, -math.inf) for token_id in sorted(barred)]
        pairs += [(token_id, bias) for token_id, bias in parameters.get("logit_bias") or ()]
        if pairs:
            biases = (llama_cpp.llama_logit_bias * len(pairs))()
            for place, (token_id, bias) in enumerate(pairs):
                biases[place].token = token_id
                biases[place].bias = bias
            self._add("logit_bias", llama_cpp.llama_sampler_init_logit_bias(self._vocab_size, len(pairs), biases))

    def _add_penalties(self, parameters: dict[str, Any], prompt: Sequence[int]) -> None:
        """Two samplers: one penalty counts the prompt, the others do not."""
        repetition = parameters.get("repetition_penalty", 1.0)
        if repetition != 1.0:
            sampler = llama_cpp.llama_sampler_init_penalties(self._vocab_size, WINDOW, repetition, 0.0, 0.0)
            if sampler:
                for token_id in prompt:
                    llama_cpp.llama_sampler_accept(sampler, token_id)
            self._add("repetition_penalty", sampler)
        frequency, presence = parameters.get("frequency_penalty", 0.0), parameters.get("presence_penalty", 0.0)
        if frequency != 0.0 or presence != 0.0:
            sampler = llama_cpp.llama_sampler_init_penalties(self._vocab_size, WINDOW, 1.0, frequency, presence)
            self._add("frequency_penalty and presence_penalty", sampler)

    def _add_choice(self, parameters: dict[str, Any], seed: int) -> None:
        temperature = parameters.get("temperature", 0.0)
        if temperature == 0.0:
            self._add("greedy", llama_cpp.llama_sampler_init_greedy())
            return
        self._add("temperature", llama_cpp.llama_sampler_init_temp(temperature))
        for name, make in (
            ("top_k", llama_cpp.llama_sampler_init_top_k),
            ("top_p", lambda value: llama_cpp.llama_sampler_init_top_p(value, 1)),
            ("min_p", lambda value: llama_cpp.llama_sampler_init_min_p(value, 1)),
        ):
            if parameters.get(name) is not None:
                self._add(name, make(parameters[name]))
        self._add("seed", llama_cpp.llama_sampler_init_dist(seed))

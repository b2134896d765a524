"""What is tried of an engine: runs of requests, each with its own parameters, drawn from what the engine declares."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from oracle.choosers import Chooser
from oracle.contract.processing import USUAL_FILTERS
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest

# Each tuple has the simplest value first; repeats make a value likelier.
_MAX_TOKENS = (1, 2, 3, 5, 8, 8, 12, 16, 24)
_ARRIVALS = (0, 0, 0, 1, 2, 3, 6, 9)
_ABORTS = (None,) * 7 + (1, 2, 4)
_PROMPT_LENGTHS = (8, 8, 16, 16, 33, 33, 70)
_ALPHABETS = (0, 0, 0, 4, 3)
"""How many token ids a prompt is made of, so that runs of tokens come twice; 0 for all."""

_NUM_SHARED = (0, 0, 0, 4, 8, 16, 17, 33)
_TRUE = (True,)

MAX_REQUESTS = 6
MAX_PARAMETERS = 3
_SALTS = (None, None, "one", "two")
_PRIMES = (7919, 104729)


@dataclass(frozen=True)
class Limits:
    """What a run is drawn within.

    Attributes:
        vocab_size: Token ids lie below it.
        max_model_len: Longest request, prompt and output together.
        eos_token_ids: What ends a request of the checkpoint.
        is_known: Whether the model is one that is known here; of a server's own, nothing is.
    """

    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...] = ()
    is_known: bool = True


Draw = Callable[[Chooser, Limits, int], Any]
"""Gives a value of a parameter, for a request of so many output tokens."""


def _of(*values: object) -> Draw:
    return lambda choose, _limits, _max_tokens: choose.one_of(values)


def _some_ids(share: float, choose: Chooser, limits: Limits) -> list[int]:
    """Draws so large a share of the vocabulary that one of them is soon met, but at most 64."""
    number = max(1, min(64, round(share * limits.vocab_size)))
    start = choose.one_of(range(limits.vocab_size))
    return sorted({(start + place * _PRIMES[0]) % limits.vocab_size for place in range(number)})


def _ids(share: float) -> Draw:
    return lambda choose, limits, _max_tokens: _some_ids(share, choose, limits)


def _biases(choose: Chooser, limits: Limits, _: int) -> list[list[Any]]:
    token_ids = _some_ids(0.1, choose, limits)
    signs = choose.one_of((4.0, -100.0, 2.5, 100.0))
    return [[token_id, signs if place % 2 else -signs] for place, token_id in enumerate(token_ids)]


def _sequences(choose: Chooser, limits: Limits, _: int) -> list[list[int]]:
    singles = [[token_id] for token_id in _some_ids(0.15, choose, limits)]
    pairs = [[token_id, (token_id + _PRIMES[1]) % limits.vocab_size] for token_id in _some_ids(0.1, choose, limits)]
    return singles + pairs


def _choices(choose: Chooser, limits: Limits, _: int) -> list[list[int]]:
    starts = _some_ids(0.05, choose, limits)
    stops = set(limits.eos_token_ids)
    sequences = [
        [(start + place * _PRIMES[1] % 97) % limits.vocab_size for place in range(1 + start % 3)] for start in starts
    ]
    return [sequence for sequence in sequences if not stops & set(sequence)] or [[starts[0]]]


_DRAWS: Mapping[str, Draw] = {
    "top_k": _of(1, 2, 3, 8),
    "top_p": _of(0.5, 0.9, 0.1, 0.99),
    "min_p": _of(0.1, 0.5, 0.02),
    "n": _of(2, 3),
    "repetition_penalty": _of(1.5, 0.6, 1.1, 3.0),
    "presence_penalty": _of(1.5, -1.0, 2.0),
    "frequency_penalty": _of(1.0, -0.5, 2.0),
    "logit_bias": _biases,
    "allowed_token_ids": _ids(0.2),
    "bad_token_sequences": _sequences,
    "no_repeat_ngram_size": _of(2, 1, 3),
    "choices": _choices,
    "min_tokens": lambda choose, _, max_tokens: choose.one_of(range(1, max_tokens + 1)),
    "ignore_eos": _of(*_TRUE),
    "stop_token_ids": _ids(0.12),
    "logprobs": _of(1, 0, 3, 5),
    "prompt_logprobs": _of(1, 0, 3),
    "logits": _of(*_TRUE),
    "priority": _of(1, 2, 0),
    "cache_salt": _of("one", "two"),
}
"""How each parameter but temperature and seed is drawn."""

FOR_DRAWS = (*USUAL_FILTERS, "seed")
"""Parameters that mean something only where there is a temperature."""

_FREE = (*FOR_DRAWS, "temperature")
"""Parameters that mean something only where tokens are drawn."""


def choose_run(choose: Chooser, declaration: EngineDeclaration, limits: Limits) -> tuple[EngineRequest, ...]:
    """Chooses the requests of one run, at least one; the simplest is one request of one token, greedy."""
    most = min(MAX_REQUESTS, declaration.max_num_requests)
    requests: list[EngineRequest] = []
    for number in choose.items(most, least=1):
        request = _choose_request(choose, declaration, limits, f"r{number}", requests)
        if declaration.shares_parameters and requests:
            request = EngineRequest(
                request.request_id,
                request.prompt_token_ids,
                requests[0].max_tokens,
                requests[0].parameters,
                request.arrival,
                request.abort_after,
            )
        requests.append(request)
    return tuple(requests)


def _choose_request(
    choose: Chooser, declaration: EngineDeclaration, limits: Limits, name: str, earlier: Sequence[EngineRequest]
) -> EngineRequest:
    longest = max(1, limits.max_model_len - max(_MAX_TOKENS))
    alphabet = min(choose.one_of(_ALPHABETS) or limits.vocab_size, limits.vocab_size)
    prompt = tuple(choose.token_ids(alphabet, min(choose.one_of(_PROMPT_LENGTHS), longest)))
    num_shared = choose.one_of(_NUM_SHARED) if earlier else 0
    if num_shared:
        prompt = (choose.one_of(tuple(earlier)).prompt_token_ids[:num_shared] + prompt)[:longest]
    while len(prompt) < declaration.min_prompt_tokens:
        prompt = (*prompt, 0)
    max_tokens = min(choose.one_of(_MAX_TOKENS), limits.max_model_len - len(prompt))
    capabilities = declaration.capabilities
    return EngineRequest(
        name,
        prompt,
        max_tokens,
        _choose_parameters(choose, declaration, limits, max_tokens),
        arrival=choose.one_of(_ARRIVALS) if "arrivals" in capabilities else 0,
        abort_after=choose.one_of(_ABORTS) if "aborts" in capabilities else None,
    )


def _choose_parameters(
    choose: Chooser, declaration: EngineDeclaration, limits: Limits, max_tokens: int
) -> dict[str, Any]:
    """Chooses what one request asks for; the simplest is nothing."""
    chosen: dict[str, Any] = {}
    names = [name for name in declaration.parameters if name in _DRAWS and name not in _FREE]
    if "temperature" in declaration.parameters and choose.one_of((False, False, True)):
        chosen["temperature"] = _value(choose, declaration, "temperature", lambda: choose.one_of((1.0, 0.5, 1.5)))
        names += [name for name in declaration.parameters if name in _FREE and name in _DRAWS]
        if "seed" in declaration.parameters and choose.one_of((True, True, True, False)):
            chosen["seed"] = _value(choose, declaration, "seed", lambda: choose.one_of(range(2**31)))
    drawn = [choose.one_of(names) for _ in choose.items(min(MAX_PARAMETERS, len(names)))]
    if "min_tokens" in drawn and "stop_token_ids" in names and choose.one_of((True, True, False)):
        drawn.append("stop_token_ids")  # without tokens that would end it, waiting for them shows nothing
    for name in dict.fromkeys(drawn):
        draw = partial(_DRAWS[name], choose, limits, max_tokens)
        chosen[name] = _value(choose, declaration, name, draw)
    _drop_illegal(chosen, declaration)
    return chosen


def _drop_illegal(chosen: dict[str, Any], declaration: EngineDeclaration) -> None:
    """Takes out what may not stand together with others, and then what lacks another parameter that it needs."""
    for group in declaration.excluded_parameters:
        if group and all(name in chosen for name in group):
            del chosen[group[-1]]
    for _ in declaration.needed_parameters:  # one may need another that needs a third
        for name, needed in declaration.needed_parameters.items():
            if needed not in chosen:
                chosen.pop(name, None)


def is_legal(declaration: EngineDeclaration, parameters: Mapping[str, Any]) -> bool:
    """Tells whether an engine declares that one request may ask for some parameters together."""
    values, needed = declaration.parameter_values, declaration.needed_parameters
    return (
        set(parameters) <= set(declaration.parameters)
        and all(value in values[name] for name, value in parameters.items() if name in values)
        and not any(group and set(group) <= set(parameters) for group in declaration.excluded_parameters)
        and all(needed[name] in parameters for name in parameters if name in needed)
    )


def _value(choose: Chooser, declaration: EngineDeclaration, name: str, draw: Callable[[], Any]) -> Any:
    allowed = declaration.parameter_values.get(name)
    return choose.one_of(tuple(allowed)) if allowed else draw()

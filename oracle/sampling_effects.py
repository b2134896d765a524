"""Did every parameter that was accepted have its effect? Sampling once more, in plain Python, with and without each.

Nothing of the engine's sampler is used but its one random number for each token. What is added up in another order
may differ in the last bit, so a draw that falls next to the border between two tokens is not judged.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from oracle.drive import Drive
from oracle.errors import CheckFailed, OutcomeMismatch
from oracle.lone_answer import SampleRun
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from refinfer.sampling.sampler import draw_uniform
from refinfer.scheduler import Request

BORDER = 1e-9
"""A draw, or a sum of probabilities, this close to where it would mean another token may be decided by rounding."""

TOKEN_PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "min_tokens",
)
"""Parameters that change which token comes."""


def plain_token(
    logits: Sequence[float], spec: SamplingSpec, request: Request, output: Sequence[int], masked: Iterable[int]
) -> list[tuple[int, float]]:
    """Gives the tokens that may come, highest first, with their weights after every step but the draw.

    Args:
        logits: The model's logits.
        spec: The parameters.
        request: The request.
        output: Its output so far.
        masked: Tokens that must not come before `min_tokens` are out.
    """
    scores = dict(enumerate(map(float, logits)))
    if len(output) < spec.min_tokens:
        scores.update((token_id, -math.inf) for token_id in masked if token_id in scores)
    for token_id, bias in spec.logit_bias:
        scores[token_id] += bias
    for token_id in {*request.prompt_token_ids, *output}:
        is_positive = scores[token_id] > 0
        scores[token_id] *= 1 / spec.repetition_penalty if is_positive else spec.repetition_penalty
    for token_id, count in Counter(output).items():
        scores[token_id] -= spec.frequency_penalty * count + spec.presence_penalty
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    if spec.temperature == 0.0:
        return [(ordered[0][0], 1.0)]
    best = ordered[0][1]
    weights = [(token_id, math.exp((score - best) / spec.temperature)) for token_id, score in ordered]
    weights = [(token_id, weight) for token_id, weight in weights if weight and weight >= spec.min_p]
    weights = weights[: spec.top_k] if spec.top_k else weights
    return _nucleus(weights, spec.top_p) if spec.top_p < 1.0 else weights


def _nucleus(weights: list[tuple[int, float]], top_p: float) -> list[tuple[int, float]]:
    total, reached = math.fsum(weight for _, weight in weights), 0.0
    for number, (_, weight) in enumerate(weights, start=1):
        reached += weight / total
        if reached >= top_p:
            return weights[:number]
    return weights


def drawn(weights: list[tuple[int, float]], uniform: float) -> int | None:
    """Gives the token in whose share of the distribution, over ascending ids, a number falls; None at a border."""
    total, reached = math.fsum(weight for _, weight in weights), 0.0
    for token_id, weight in sorted(weights):
        reached += weight / total
        if abs(reached - uniform) < BORDER:
            return None
        if uniform < reached:
            return token_id
    return None


def effects_of(spec: RequestSpec, request: Request, run: SampleRun, eos_token_ids: frozenset[int]) -> set[str]:
    """Gives the parameters that had an effect on a sample, after holding it to all of them.

    Raises:
        OutcomeMismatch: A token is not the one that the parameters demand, or what was asked for did not come.
    """
    return token_effects(spec, request, run, eos_token_ids) | other_effects(spec, run)


def token_effects(spec: RequestSpec, request: Request, run: SampleRun, eos_token_ids: frozenset[int]) -> set[str]:
    """Gives the parameters that changed a token of a sample, after holding every token to plain sampling.

    Raises:
        OutcomeMismatch: A token is not the one that the parameters demand.
    """
    seen = set()
    masked = eos_token_ids | set(spec.sampling.stop_token_ids)
    tokens = run.output.token_ids
    named = [name for name in TOKEN_PARAMETERS if name in spec.sampling.named]
    for place, token_id in enumerate(tokens):
        uniform = draw_uniform(request.seed, run.output.index, place)
        logits, output = run.logits[place].tolist(), tokens[:place]
        expected = drawn(plain_token(logits, spec.sampling, request, output, masked), uniform)
        if expected not in (token_id, None):
            message = (
                f"request {request.request_id}, sample {run.output.index}: token {token_id} at {place}, and "
                f"{spec.sampling} demands {expected}"
            )
            raise OutcomeMismatch(message, place=place, token_id=token_id, expected=expected)
        for name in named:
            without = replace(spec.sampling, **{name: getattr(_GREEDY, name)})
            if name not in seen and drawn(plain_token(logits, without, request, output, masked), uniform) != token_id:
                seen.add(name)
    return seen


_GREEDY = SamplingSpec()


def observed_effects(scenario: Scenario, drive: Drive, eos_token_ids: frozenset[int]) -> set[str]:
    """Gives the parameters that had an effect in a run, after holding all of its requests to theirs.

    Raises:
        CheckFailed: A parameter has not the effect that it should have.
    """
    try:
        return {
            name
            for spec, driven in zip(scenario.requests, drive.driven, strict=True)
            for run in driven.samples()
            for name in effects_of(spec, driven.request, run, eos_token_ids)
        }
    except OutcomeMismatch as error:
        raise CheckFailed(str(error)) from error


def other_effects(spec: RequestSpec, run: SampleRun) -> set[str]:
    """Gives the parameters that change no token and had their effect, after holding what a sample gave to them.

    Raises:
        OutcomeMismatch: What was asked for did not come, or came with other values.
    """
    output, sampling = run.output, spec.sampling
    check_logprobs(output.logprobs, run.logits, sampling.logprobs, output.token_ids)
    num_prompt = None if run.prompt_logprobs is None else len(run.prompt_logprobs)
    is_whole = output.finish_reason != "abort" and output.index == 0
    if is_whole and num_prompt != (None if sampling.prompt_logprobs is None else len(spec.prompt_token_ids)):
        message = f"prompt_logprobs={sampling.prompt_logprobs} gave {num_prompt} entries"
        raise OutcomeMismatch(message, num_entries=num_prompt)
    return {name for name, is_seen in _IS_SEEN_BY_NAME.items() if is_seen(sampling, run)}


_IS_SEEN_BY_NAME: dict[str, Callable[[SamplingSpec, SampleRun], bool]] = {
    "n": lambda _, run: run.output.index > 0,
    "logprobs": lambda _, run: bool(run.output.logprobs),
    "prompt_logprobs": lambda _, run: bool(run.prompt_logprobs and len(run.prompt_logprobs) > 1),
    "stop": lambda sampling, run: run.output.stop_reason in sampling.stop,
    "stop_token_ids": lambda sampling, run: run.output.stop_reason in sampling.stop_token_ids,
    "seed": lambda sampling, _: sampling.seed is not None and sampling.temperature > 0.0,
}

OTHER_PARAMETERS = tuple(_IS_SEEN_BY_NAME)
"""Parameters that change no token, and whose effect is looked for in what a sample gives."""


def check_logprobs(logprobs: object, rows: Sequence[np.ndarray], wanted: int | None, token_ids: Sequence[int]) -> None:
    """Holds log-probabilities of output tokens to a plain log-softmax.

    Raises:
        OutcomeMismatch: They are missing, of another number, off by more than rounding, or of another rank.
    """
    if wanted is None or not isinstance(logprobs, list):
        if (wanted is None) != (logprobs is None):
            message = f"logprobs={wanted} gave {logprobs!r}"
            raise OutcomeMismatch(message, logprobs=logprobs)
        return
    for own, row, token_id in zip(logprobs, rows, token_ids, strict=True):
        values = list(map(float, row))
        normaliser = max(values) + math.log(math.fsum(math.exp(value - max(values)) for value in values))
        best = sorted(range(len(values)), key=lambda place: (-values[place], place))[:wanted]
        if set(own) != {token_id, *best}:
            message = f"logprobs={wanted} gave tokens {sorted(own)}, and {sorted({token_id, *best})} were due"
            raise OutcomeMismatch(message, own=own)
        for listed, entry in own.items():
            if abs(entry.logprob - (values[listed] - normaliser)) > BORDER:
                message = f"logprob of token {listed} is {entry.logprob}, and {values[listed] - normaliser} was due"
                raise OutcomeMismatch(message, token_id=listed)
            rank = 1 + sum(value > values[listed] for value in values)
            if entry.rank != rank:
                message = f"token {listed} has rank {entry.rank}, and {rank} was due"
                raise OutcomeMismatch(message, token_id=listed)

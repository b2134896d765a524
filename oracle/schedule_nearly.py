"""Did a request give in a schedule what it gives alone, but for rounding? For the plain manner of numerics."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from oracle.case import Case
from oracle.compare import compare_logits
from oracle.drive import DrivenRequest
from oracle.errors import LogitsMismatch, TokenMismatch
from oracle.lone_answer import SampleRun
from oracle.observation import Observation
from oracle.schedule_compare import check_whole_text, compare_sample
from refinfer.sampling import SampleContext, sample_token


def compare_request_nearly(
    observation: Observation, case: Case, driven: DrivenRequest, expected: Sequence[SampleRun], what: str
) -> None:
    """Holds every sample to what it gives alone within rounding; where tokens part for that reason, the rest is left.

    Raises:
        MismatchError: Logits or log-probabilities are further apart than rounding explains, or a token follows from
            no logits that lie so near.
    """
    tokenizer = case.loaded(batch_invariant=False).tokenizer
    for index, (own, alone) in enumerate(zip(driven.samples(), expected, strict=True)):
        own_what = f"{what}, sample {index}"
        check_whole_text(own, tokenizer, own_what)
        _compare_nearly(observation, case, driven, (own, alone), own_what)


def _compare_nearly(
    observation: Observation, case: Case, driven: DrivenRequest, pair: tuple[SampleRun, SampleRun], what: str
) -> None:
    own, alone = pair
    tokens, others = own.output.token_ids, alone.output.token_ids
    num_same = 0
    while num_same < min(len(tokens), len(others)) and tokens[num_same] == others[num_same]:
        num_same += 1
    is_parting = num_same < min(len(tokens), len(others))
    bound = 2 * case.bound(driven.request.prompt_token_ids + tuple(others))
    if num_same + is_parting:
        rows, other_rows = (_rows(sample, num_same + is_parting) for sample in pair)
        observation.see_difference(compare_logits(rows, other_rows, bound, what))
    _compare_logprobs(own.prompt_logprobs, alone.prompt_logprobs, 2 * bound, f"{what}: prompt_logprobs")
    if is_parting:
        _check_follows(case, driven, own, num_same, what)
        observation.num_near_ties += 1
        return
    _compare_logprobs(own.output.logprobs, alone.output.logprobs, 2 * bound, f"{what}: logprobs")
    compare_sample(_without_logprobs(own), _without_logprobs(alone), what)


def _rows(sample: SampleRun, number: int) -> np.ndarray:
    return np.stack(sample.logits[:number]).astype(np.float64)


def _check_follows(case: Case, driven: DrivenRequest, own: SampleRun, place: int, what: str) -> None:
    """Holds the token at which two runs part to the logits that it was picked from."""
    request = driven.request
    context = SampleContext(
        request.params,
        request.seed,
        own.output.index,
        request.prompt_token_ids,
        own.output.token_ids[:place],
        frozenset(case.eos_token_ids),
    )
    follows = sample_token(own.logits[place], context)
    if follows != own.output.token_ids[place]:
        message = f"{what}: token {own.output.token_ids[place]} at {place} does not follow from its logits: {follows}"
        raise TokenMismatch(message, place=place)


def _compare_logprobs(own: Any, expected: Any, bound: float, what: str) -> None:
    """Holds log-probabilities to others, as far as both lists go and both name a token."""
    if (own is None) != (expected is None):
        message = f"{what} came as {own!r} instead of {expected!r}"
        raise LogitsMismatch(message)
    for place, (some, others) in enumerate(zip(own or (), expected or (), strict=False)):
        for token_id in set(some or ()) & set(others or ()):
            gap = abs(some[token_id].logprob - others[token_id].logprob)
            if not gap <= bound:
                message = f"{what} of token {token_id} at {place} is {gap:.3g} off, over the bound {bound:.3g}"
                raise LogitsMismatch(message, place=place, gap=gap)


def _without_logprobs(sample: SampleRun) -> SampleRun:
    output = replace(sample.output, logprobs=None, cumulative_logprob=None)
    return SampleRun(output, None, sample.logits)

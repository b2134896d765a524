"""What should a request emit, given its logits? A second way to the answer: plain loops, sorting and exact sums.

It shares nothing with `refinfer.sampling` but the generator, which the seed's meaning names.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.errors import OutcomeMismatch, TokenMismatch

BORDER = 1e-9
"""A decision closer than this to falling the other way is not judged: float64 sums in another order may differ."""

LOGPROB_BOUND = 1e-9
"""Largest difference of a log-probability: float64 sums over a vocabulary, in another order."""


@dataclass(frozen=True)
class Sample:
    """What one sample of a request gave, and what it was asked for.

    Attributes:
        params: Its sampling parameters, read by their names alone.
        seed: What its randomness came from.
        sample_index: Which of the request's samples it is.
        prompt_token_ids: The prompt.
        output_token_ids: What it emitted.
        eos_token_ids: End-of-sequence ids of the model.
        max_model_len: Longest request in tokens.
        finish_reason: Why it ended.
        stop_reason: The stop token or string that ended it.
        logprobs: For each emitted token (logprob, rank) by token id; None where not asked for.
    """

    params: Any
    seed: int
    sample_index: int
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...]
    eos_token_ids: frozenset[int]
    max_model_len: int
    finish_reason: str | None
    stop_reason: int | str | None = None
    logprobs: Sequence[dict[int, tuple[float, int]]] | None = None


def judge_sample(sample: Sample, logits: Sequence[np.ndarray], what: str) -> int:
    """Holds a sample to what its logits and parameters say.

    Args:
        sample: What was given.
        logits: For each emitted token, the model's logits that it was picked from.
        what: How messages name the sample.

    Returns:
        How many tokens were judged; those at a border of rounding are not.

    Raises:
        TokenMismatch: A token is not the one that had to be picked.
        OutcomeMismatch: A log-probability, a rank, or the end is wrong.
    """
    num_judged = 0
    for position, token_id in enumerate(sample.output_token_ids):
        expected = expected_token_id(sample, logits[position], sample.output_token_ids[:position])
        if expected is not None and expected != token_id:
            message = f"{what}, output position {position}: token {token_id} instead of {expected}"
            raise TokenMismatch(message, position=position, token_id=token_id, expected=expected)
        num_judged += expected is not None
    judge_logprobs(sample, logits, what)
    judge_end(sample, what)
    return num_judged


def judge_logprobs(sample: Sample, logits: Sequence[np.ndarray], what: str) -> None:
    """Holds log-probabilities and ranks to the model's own distribution.

    Raises:
        OutcomeMismatch: One is wrong, missing, or too many.
    """
    num_wanted = sample.params.logprobs
    if (num_wanted is None) != (sample.logprobs is None):
        message = f"{what}: {num_wanted} logprobs were asked for and {sample.logprobs} came"
        raise OutcomeMismatch(message, num_wanted=num_wanted)
    if sample.logprobs is None:
        return
    if len(sample.logprobs) != len(sample.output_token_ids):
        message = f"{what}: logprobs of {len(sample.logprobs)} tokens for {len(sample.output_token_ids)}"
        raise OutcomeMismatch(message, num_tokens=len(sample.logprobs))
    for position, (token_id, own) in enumerate(zip(sample.output_token_ids, sample.logprobs, strict=True)):
        judge_token_logprobs(own, logits[position], token_id, num_wanted, f"{what}, output position {position}")


def judge_token_logprobs(
    own: dict[int, tuple[float, int]], row: np.ndarray, token_id: int, num_wanted: int, what: str
) -> None:
    """Holds what was given for one token to its row of logits.

    Raises:
        OutcomeMismatch: A log-probability, a rank or the choice of tokens is wrong.
    """
    scores = [float(value) for value in row]
    highest = max(scores)
    log_total = math.log(math.fsum(math.exp(score - highest) for score in scores))
    likeliest = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:num_wanted]
    if list(own) != list(dict.fromkeys([token_id, *likeliest])):
        message = f"{what}: logprobs of tokens {list(own)} instead of {[token_id, *likeliest]}"
        raise OutcomeMismatch(message, token_ids=list(own))
    for index, (logprob, rank) in own.items():
        expected = scores[index] - highest - log_total
        expected_rank = 1 + sum(score > scores[index] for score in scores)
        if not (abs(logprob - expected) <= LOGPROB_BOUND or logprob == expected) or rank != expected_rank:
            message = f"{what}, token {index}: ({logprob}, {rank}) instead of ({expected}, {expected_rank})"
            raise OutcomeMismatch(message, token_id=index, logprob=logprob, rank=rank)


def judge_end(sample: Sample, what: str) -> None:
    """Holds the end to the rules, but for stop strings, which only text can show.

    Raises:
        OutcomeMismatch: It ended too early, too late, or for another reason than it says.
    """
    if sample.finish_reason == "abort" or isinstance(sample.stop_reason, str):
        return
    end = expected_end(sample)
    given = (len(sample.output_token_ids), sample.finish_reason, sample.stop_reason)
    if end != given:
        message = f"{what}: (tokens, finish reason, stop reason) {given} instead of {end}"
        raise OutcomeMismatch(message, given=given, expected=end)


def expected_end(sample: Sample) -> tuple[int, str | None, int | None]:
    """Gives how many of the emitted tokens there should be, and why no more; a reason of None goes on."""
    params = sample.params
    for count, token_id in enumerate(sample.output_token_ids, start=1):
        if count > params.min_tokens:
            if token_id in sample.eos_token_ids and not params.ignore_eos:
                return count, "stop", None
            if token_id in (params.stop_token_ids or ()):
                return count, "stop", token_id
        if count == params.max_tokens or len(sample.prompt_token_ids) + count >= sample.max_model_len:
            return count, "length", None
    return len(sample.output_token_ids), None, None


def expected_token_id(sample: Sample, row: np.ndarray, output: Sequence[int]) -> int | None:
    """Gives the token that has to be picked; None where rounding may decide.

    Args:
        sample: What was asked for.
        row: The model's logits.
        output: The tokens emitted before.
    """
    params = sample.params
    scores = _scores(sample, row, output)
    highest = max(scores.values())
    if params.temperature == 0:
        return min(token_id for token_id, score in scores.items() if score == highest)
    ratios = {token_id: math.exp((score - highest) / params.temperature) for token_id, score in scores.items()}
    margin = min((abs(ratio - params.min_p) for ratio in ratios.values() if ratio < 1 and params.min_p), default=1.0)
    kept = sorted(ratios, key=lambda token_id: (-scores[token_id], token_id))
    kept = [token_id for token_id in kept if ratios[token_id] >= params.min_p]
    if params.top_k > 0:
        kept = kept[: params.top_k]
    if params.top_p < 1:
        kept, top_p_margin = _top_p(kept, ratios, params.top_p)
        margin = min(margin, top_p_margin)
    total = math.fsum(ratios[token_id] for token_id in kept)
    target = _uniform(sample, len(output)) * total
    picked, mass = kept[0], 0.0
    for token_id in sorted(kept):
        mass += ratios[token_id]
        margin = min(margin, abs(mass - target) / total)
        if mass > target:
            picked = token_id
            break
    return picked if margin > BORDER else None


def _scores(sample: Sample, row: np.ndarray, output: Sequence[int]) -> dict[int, float]:
    """Gives the scores of the tokens in question, after everything that greedy choice sees."""
    params = sample.params
    stops = set(sample.eos_token_ids) | set(params.stop_token_ids or ())
    bias = dict(params.logit_bias or {})
    seen = {*sample.prompt_token_ids, *output}
    scores = {}
    for token_id, logit in enumerate(row):
        score = float(logit)
        if score == -math.inf or (len(output) < params.min_tokens and token_id in stops):
            continue
        score += bias.get(token_id, 0.0)
        if token_id in seen:
            score = score / params.repetition_penalty if score > 0 else score * params.repetition_penalty
        score -= params.frequency_penalty * output.count(token_id)
        score -= params.presence_penalty if token_id in output else 0.0
        scores[token_id] = score
    return scores


def _top_p(kept: list[int], ratios: dict[int, float], top_p: float) -> tuple[list[int], float]:
    """Gives the fewest of the likeliest tokens that reach the mass, and how close a decision was."""
    total = math.fsum(ratios[token_id] for token_id in kept)
    margin = 1.0
    for count in range(1, len(kept) + 1):
        mass = math.fsum(ratios[token_id] for token_id in kept[:count]) / total
        margin = min(margin, abs(mass - top_p))
        if mass >= top_p:
            return kept[:count], margin
    return kept, margin


def _uniform(sample: Sample, position: int) -> float:
    key = np.array([sample.seed, sample.sample_index], dtype=np.uint64)
    counter = np.array([0, 0, 0, position], dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key, counter=counter)).random())

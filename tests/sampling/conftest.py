"""A second way to the probabilities of the next token: plain Python, with loops and sorting."""

import math
from typing import NamedTuple

import pytest


class PlainDistribution(NamedTuple):
    """What the plain computation finds.

    Attributes:
        probability_by_token_id: The tokens that can be drawn.
        margin: How far the closest decision of min_p or top_p was from falling the other way.
    """

    probability_by_token_id: dict[int, float]
    margin: float

    def row(self, vocab_size):
        """All probabilities, by token id."""
        return [self.probability_by_token_id.get(token_id, 0.0) for token_id in range(vocab_size)]


def plain_scores(logits, params, *, prompt=(), output=(), eos=()):
    """By token id, the scores of tokens that are in question, after everything that greedy choice sees."""
    scores = {}
    for token_id, logit in enumerate(logits):
        is_stop = token_id in eos or token_id in params.stop_token_ids
        if logit == -math.inf or (is_stop and len(output) < params.min_tokens):
            continue
        score = float(logit)
        if params.logit_bias and token_id in params.logit_bias:
            score += params.logit_bias[token_id]
        if token_id in prompt or token_id in output:
            score = score / params.repetition_penalty if score > 0 else score * params.repetition_penalty
        score -= params.frequency_penalty * list(output).count(token_id)
        if token_id in output:
            score -= params.presence_penalty
        scores[token_id] = score
    return scores


def plain_distribution(logits, params, *, prompt=(), output=(), eos=()):
    """The distribution of the next token; empty where no token is in question."""
    scores = plain_scores(logits, params, prompt=prompt, output=output, eos=eos)
    if not scores:
        return PlainDistribution({}, 1.0)
    highest = max(scores.values())
    if params.temperature == 0:
        return PlainDistribution({min(token_id for token_id in scores if scores[token_id] == highest): 1.0}, 1.0)
    ratios = {token_id: math.exp((score - highest) / params.temperature) for token_id, score in scores.items()}
    margin = min((abs(ratio - params.min_p) for ratio in ratios.values() if ratio != 1.0), default=1.0)
    ordered = sorted(scores, key=lambda token_id: ((highest - scores[token_id]) / params.temperature, token_id))
    ordered = [token_id for token_id in ordered if ratios[token_id] >= params.min_p]
    if params.top_k > 0:
        ordered = ordered[: params.top_k]
    total = math.fsum(ratios[token_id] for token_id in ordered)
    kept: list[int] = []
    for token_id in ordered:
        kept.append(token_id)
        mass = math.fsum(ratios[other] for other in kept) / total
        if params.top_p < 1:
            margin = min(margin, abs(mass - params.top_p))
            if mass >= params.top_p:
                break
    total = math.fsum(ratios[token_id] for token_id in kept)
    return PlainDistribution({token_id: ratios[token_id] / total for token_id in kept}, margin)


@pytest.fixture(scope="session", name="plain_distribution")
def _plain_distribution():
    """The plain computation: logits, parameters, prompt, output and end-of-sequence ids in, a distribution out."""
    return plain_distribution


@pytest.fixture(scope="session", name="plain_scores")
def _plain_scores():
    """The plain computation up to what greedy choice sees, of the same arguments."""
    return plain_scores

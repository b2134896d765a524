"""Faults of a draft model's cache, and of the law of tokens that were drawn and verified."""

from typing import Any

import numpy as np

from oracle.faults.registry import Area, one_replacement
from refinfer.shapes import Probabilities
from refinfer.speculative import DraftModelProposer, DraftRequest, verifier

_begin = DraftModelProposer._begin  # noqa: SLF001


@one_replacement(
    "draft_cache_misses_a_token",
    Area.DRAFTING,
    "the draft model never runs the last token before a guess again, and takes an old value for it",
    DraftModelProposer,
    "_begin",
    models=("ggml-org/llama.cpp#26478 (9.16)",),
    component=("speculative/draft_model.py",),
    needs=("draft model",),
    seen_by=("state",),
)
def draft_cache_misses_a_token(self: DraftModelProposer, request: DraftRequest) -> Any:
    """Counts one token as run that has not."""
    guess = _begin(self, request)
    if guess is not None and len(guess.held.token_ids) + 1 < len(request.token_ids):
        guess.held.token_ids.append(request.token_ids[len(guess.held.token_ids)])
    return guess


@one_replacement(
    "draft_cache_shared_by_requests",
    Area.DRAFTING,
    "the draft model keeps the keys and values of all requests as if they were one",
    DraftModelProposer,
    "_begin",
    models=("ggml-org/llama.cpp#28286 (9.10)",),
    component=("speculative/draft_model.py",),
    needs=("draft model", "batch"),
    seen_by=("state",),
)
def draft_cache_shared_by_requests(self: DraftModelProposer, request: DraftRequest) -> Any:
    """Looks all of them up under one name."""
    return _begin(self, request._replace(key="all"))


@one_replacement(
    "likeliest_token_replaces",
    Area.LAW,
    "after a rejection the likeliest token of the residual comes, instead of one that is drawn",
    verifier,
    "residual",
    models=("vllm-project/vllm#8320 (9.04)",),
    component=("speculative/verifier.py",),
    needs=("draft model", "unseeded draws"),
    seen_by=("distribution",),
)
def likeliest_token_replaces(target: Probabilities, drafted: Probabilities) -> Probabilities:
    """Puts all on one token."""
    own = np.maximum(target - drafted, 0.0)
    return np.asarray(np.arange(len(own)) == own.argmax(), dtype=np.float64)


@one_replacement(
    "whole_distribution_replaces",
    Area.LAW,
    "after a rejection a token is drawn from the model's distribution, without taking the draft's away",
    verifier,
    "residual",
    models=("vllm-project/vllm-ascend#7807 (9.03)",),
    component=("speculative/verifier.py",),
    needs=("draft model", "unseeded draws"),
    seen_by=("distribution",),
)
def whole_distribution_replaces(target: Probabilities, drafted: Probabilities) -> Probabilities:  # noqa: ARG001
    """Takes nothing away."""
    return target


@one_replacement(
    "acceptance_without_the_drafts_probability",
    Area.LAW,
    "a guess stays with the model's probability of it, whatever it was drawn with",
    verifier,
    "acceptance",
    models=("deepseek-ai/DeepSpec#31 (9.05)",),
    component=("speculative/verifier.py",),
    needs=("draft model", "unseeded draws"),
    seen_by=("distribution",),
)
def acceptance_without_the_drafts_probability(
    target: Probabilities,
    drafted: Probabilities,  # noqa: ARG001
    token_id: int,
) -> float:
    """Leaves the quotient out."""
    return float(target[token_id])


FAULTS = (
    draft_cache_misses_a_token,
    draft_cache_shared_by_requests,
    likeliest_token_replaces,
    whole_distribution_replaces,
    acceptance_without_the_drafts_probability,
)

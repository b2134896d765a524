"""The teaching engine's decisions about one answer: which token comes next, whether that ends it, what is shown of it.

Nothing here knows of batches or caches: all that decides is the answer itself, and the logits that the model gave.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracle.engines.messages import EngineRequest, EngineSample


@dataclass(eq=False)
class Sample:
    """One answer on its way; a request with `n` above 1 has several.

    Attributes:
        request: What was asked.
        parameters: Everything that it may ask for by name, defaults included.
        sample_index: Which of the request's answers it is.
        seed: What its draws come from.
        token_ids: Prompt and output.
        num_prompt_tokens: How many of them are the prompt's.
        logits: For each output token the model's row of logits.
        cache: Keys and values of the tokens that have run; None while it waits.
        finish_reason: Why it ended; None while it goes on.
    """

    request: EngineRequest
    parameters: dict[str, Any]
    sample_index: int
    seed: int
    token_ids: list[int]
    num_prompt_tokens: int
    logits: list[np.ndarray] = field(default_factory=list)
    cache: Any = None
    finish_reason: str | None = None

    @property
    def output_token_ids(self) -> list[int]:
        """What it has given so far."""
        return self.token_ids[self.num_prompt_tokens :]


def process(sample: Sample, logits: np.ndarray, eos_token_ids: Collection[int]) -> np.ndarray:
    """Applies the parameters that greedy choice sees too, in this order: minimum, bias, penalty."""
    parameters = sample.parameters
    scores = logits.astype(np.float64)
    if len(sample.output_token_ids) < parameters["min_tokens"]:
        scores[[*eos_token_ids, *(parameters["stop_token_ids"] or ())]] = -np.inf
    for token_id, bias in parameters["logit_bias"] or ():
        scores[token_id] += bias
    seen = sorted(set(sample.token_ids))
    penalty = parameters["repetition_penalty"]
    scores[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
    return scores


def choose(sample: Sample, logits: np.ndarray, eos_token_ids: Collection[int]) -> int:
    """Gives the next token: the likeliest at temperature 0, the lowest id among equals, else one that is drawn.

    The draw depends on the seed, the answer and the place in it, so on nothing that runs beside it.
    """
    scores = process(sample, logits, eos_token_ids)
    if sample.parameters["temperature"] == 0:
        return int(scores.argmax())
    scores = (scores - scores.max()) / sample.parameters["temperature"]
    top_k = sample.parameters["top_k"] or len(scores)
    scores[np.argsort(-scores, kind="stable")[top_k:]] = -np.inf
    cumulative = np.exp(scores).cumsum()
    draw = np.random.default_rng([sample.seed, sample.sample_index, len(sample.output_token_ids)]).random()
    return int(np.searchsorted(cumulative / cumulative[-1], draw, side="right"))


def end_of(sample: Sample, eos_token_ids: Collection[int]) -> str | None:
    """Tells why the newest token ends the answer, or gives None to go on."""
    token_id, num_tokens = sample.token_ids[-1], len(sample.output_token_ids)
    parameters = sample.parameters
    is_end = token_id in eos_token_ids and not parameters["ignore_eos"]
    if num_tokens > parameters["min_tokens"] and (is_end or token_id in (parameters["stop_token_ids"] or ())):
        return "stop"
    return "length" if num_tokens == sample.request.max_tokens else None


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Gives the logarithm of each token's probability."""
    shifted = logits.astype(np.float64) - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def show(sample: Sample) -> EngineSample:
    """Gives an answer as far as it has come, with the scores that were asked for: those of the model itself."""
    token_ids, num_top = tuple(sample.output_token_ids), sample.parameters["logprobs"]
    rows = [] if num_top is None else [log_probabilities(logits) for logits in sample.logits]
    best = [np.argsort(-row, kind="stable")[:num_top].tolist() for row in rows]
    return EngineSample(
        token_ids=token_ids,
        finish_reason=sample.finish_reason,
        logprobs=None if num_top is None else tuple(float(row[t]) for row, t in zip(rows, token_ids, strict=True)),
        top_logprobs=None
        if num_top is None
        else tuple({t: float(row[t]) for t in top} for row, top in zip(rows, best, strict=True)),
        logits=tuple(tuple(row.tolist()) for row in sample.logits) if sample.parameters["logits"] else None,
    )

"""How do logits become probabilities? One small pure function for each step.

The steps, in vLLM's order: mask of `min_tokens`, logit bias, repetition, frequency and presence penalty,
temperature, min_p, top_k, top_p. All are in float64, and none changes the row that it is given.
A token that is out of the question has minus infinity as its logit. A logit of plus infinity is taken as the limit
that it is: such tokens share all probability equally, and greedy takes the one with the lowest id.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Int

from refinfer.errors import InvariantError, NoTokenLeftError
from refinfer.sampling.context import SampleContext
from refinfer.shapes import LogitsRow, Probabilities, ProcessedLogits


def highest_token_id(logits: LogitsRow) -> int:
    """Gives the id of the highest logit, the lowest id among equals.

    Raises:
        InvariantError: A logit is NaN, or all are minus infinity, so memory was read that nobody wrote, or the model
            overflowed.
    """
    token_id = int(logits.argmax())
    highest = logits.item(token_id)
    if highest != highest:  # noqa: PLR0124 (only NaN differs from itself, and an argmax goes to the first NaN)
        message = (
            f"logits hold NaN, first at token id {token_id} of {len(logits)}: unwritten cache memory was read, or the "
            f"model overflowed its dtype"
        )
        raise InvariantError(message, token_id=token_id, vocab_size=len(logits))
    if highest == -np.inf:
        message = f"all {len(logits)} logits of a row are minus infinity: the model overflowed its dtype"
        raise InvariantError(message, vocab_size=len(logits))
    return token_id


def mask_token_ids(logits: ProcessedLogits, token_ids: Iterable[int]) -> ProcessedLogits:
    """Puts tokens out of the question; ids outside the vocabulary have no logit to mask."""
    masked = logits.copy()
    masked[[token_id for token_id in token_ids if 0 <= token_id < len(logits)]] = -np.inf
    return masked


def add_logit_bias(logits: ProcessedLogits, bias_by_token_id: Mapping[int, float]) -> ProcessedLogits:
    """Adds to the logits of some tokens."""
    biased = logits.copy()
    biased[list(bias_by_token_id)] += list(bias_by_token_id.values())
    return biased


def apply_repetition_penalty(logits: ProcessedLogits, penalty: float, token_ids: Iterable[int]) -> ProcessedLogits:
    """Divides the positive logits of these tokens and multiplies the others, once for each token.

    Keskar et al., CTRL (2019), section 4.1, with the sign rule that every engine has adopted since.

    Args:
        logits: One row.
        penalty: Above 1 makes the tokens less likely.
        token_ids: Prompt and output; how often a token stands there does not matter.
    """
    ids = sorted(set(token_ids))
    penalised = logits.copy()
    penalised[ids] = np.where(logits[ids] > 0, logits[ids] / penalty, logits[ids] * penalty)
    return penalised


def apply_frequency_penalty(
    logits: ProcessedLogits, penalty: float, output_token_ids: Iterable[int]
) -> ProcessedLogits:
    """Takes the penalty from each output token's logit as often as the token stands in the output."""
    num_by_token_id = Counter(output_token_ids)
    penalised = logits.copy()
    penalised[list(num_by_token_id)] -= penalty * np.array(list(num_by_token_id.values()), dtype=np.float64)
    return penalised


def apply_presence_penalty(logits: ProcessedLogits, penalty: float, output_token_ids: Iterable[int]) -> ProcessedLogits:
    """Takes the penalty from each output token's logit once."""
    penalised = logits.copy()
    penalised[sorted(set(output_token_ids))] -= penalty
    return penalised


@np.errstate(over="ignore")  # an absurd penalty or bias may overflow, and an infinity has its meaning
def process_logits(logits: LogitsRow, context: SampleContext) -> ProcessedLogits:
    """Runs the steps before temperature: those that greedy choice sees too.

    Raises:
        InvariantError: A logit is NaN, or all are minus infinity.
        NoTokenLeftError: Every token that the model gives a chance is masked by `min_tokens`.
    """
    highest_token_id(logits)
    params, output_token_ids = context.params, context.output_token_ids
    processed = np.array(logits, dtype=np.float64)
    if not params.changes_logits:
        return processed
    if len(output_token_ids) < params.min_tokens:
        processed = mask_token_ids(processed, params.stop_token_id_set | context.eos_token_ids)
    if params.logit_bias is not None:
        processed = add_logit_bias(processed, params.logit_bias)
    if params.repetition_penalty != 1.0:
        token_ids = (*context.prompt_token_ids, *output_token_ids)
        processed = apply_repetition_penalty(processed, params.repetition_penalty, token_ids)
    if params.frequency_penalty != 0.0:
        processed = apply_frequency_penalty(processed, params.frequency_penalty, output_token_ids)
    if params.presence_penalty != 0.0:
        processed = apply_presence_penalty(processed, params.presence_penalty, output_token_ids)
    if processed.max() == -np.inf:
        message = (
            f"none of the {len(logits)} tokens is left to choose: min_tokens={params.min_tokens} masks "
            f"end-of-sequence and stop tokens, and the logits of all others are minus infinity; lower min_tokens or "
            f"shorten stop_token_ids"
        )
        raise NoTokenLeftError(message, vocab_size=len(logits), min_tokens=params.min_tokens)
    return processed


def below_highest(logits: LogitsRow) -> ProcessedLogits:
    """Gives the logits less the highest of them, so that no exponential overflows."""
    wide = logits.astype(np.float64)
    highest = wide.item(wide.argmax())  # on a short row a third of the time of `max`
    if highest == 0.0:
        return wide
    if highest == np.inf:
        return np.where(wide == np.inf, 0.0, -np.inf)
    with np.errstate(over="ignore"):  # two logits further apart than a float holds
        return np.asarray(wide - highest)


def apply_temperature(logits: ProcessedLogits, temperature: float) -> ProcessedLogits:
    """Divides logits by a temperature above 0, after taking the highest from all.

    Taking it away changes no probability, and so the quotients of a tiny temperature overflow to minus infinity only.
    """
    with np.errstate(over="ignore"):
        return np.asarray(below_highest(logits) / temperature)


def keep_min_p(logits: ProcessedLogits, min_p: float) -> ProcessedLogits:
    """Keeps the tokens at least `min_p` times as likely as the likeliest.

    Nguyen et al., Turning Up the Heat: Min-p Sampling (2024), section 3.
    """
    return np.where(np.exp(below_highest(logits)) >= min_p, logits, -np.inf)


def keep_top_k(logits: ProcessedLogits, top_k: int) -> ProcessedLogits:
    """Keeps exactly the `top_k` highest logits, all where there are fewer; the lowest ids among equals at the border.

    Fan et al., Hierarchical Neural Story Generation (2018), section 5.1.
    """
    return _keep(logits, top_token_ids(logits, top_k))


def keep_top_p(logits: ProcessedLogits, top_p: float) -> ProcessedLogits:
    """Keeps the fewest tokens whose probabilities, added up from the likeliest on, reach `top_p`; at least one.

    Among equals the lowest ids are added first. Sums are float64: a set whose exact sum is within rounding of `top_p`
    may hold one token more or less.
    Holtzman et al., The Curious Case of Neural Text Degeneration (2020), section 3.1, equation 2.
    """
    num_candidates = int(np.count_nonzero(logits > -np.inf))
    token_ids = top_token_ids(logits, num_candidates)
    mass = np.cumsum(softmax(logits)[token_ids])
    num_kept = int(np.searchsorted(mass, top_p, side="left")) + 1
    return _keep(logits, token_ids[:num_kept])


def top_token_ids(logits: LogitsRow, num_tokens: int) -> Int[np.ndarray, " kept"]:
    """Gives the ids of the highest logits, highest first, the lowest id among equals; all where there are fewer."""
    if num_tokens == 0:
        return np.arange(0)
    candidates = np.arange(len(logits))
    if num_tokens < len(logits):
        border = np.partition(logits, -num_tokens)[-num_tokens]
        above = np.flatnonzero(logits > border)
        at_border = np.flatnonzero(logits == border)[: num_tokens - len(above)]
        candidates = np.concatenate([above, at_border])
    order = np.argsort(-logits[candidates], kind="stable")
    return np.asarray(candidates[order])


def softmax(logits: ProcessedLogits) -> Probabilities:
    """Gives the probabilities of logits."""
    weights = np.exp(below_highest(logits))
    return np.asarray(weights / weights.sum())


def probabilities(logits: LogitsRow, context: SampleContext) -> Probabilities:
    """Gives the probability of each token to be the next, after all steps; at temperature 0 one token has it all.

    Raises:
        InvariantError: A logit is NaN, or all are minus infinity.
        NoTokenLeftError: Every token that the model gives a chance is masked by `min_tokens`.
    """
    params = context.params
    kept = process_logits(logits, context)
    if params.is_greedy:
        return np.asarray(np.arange(len(kept)) == highest_token_id(kept), dtype=np.float64)
    kept = apply_temperature(kept, params.temperature)
    if params.min_p > 0.0:
        kept = keep_min_p(kept, params.min_p)
    if params.top_k > 0:
        kept = keep_top_k(kept, params.top_k)
    if params.top_p < 1.0:
        kept = keep_top_p(kept, params.top_p)
    return softmax(kept)


def _keep(logits: ProcessedLogits, token_ids: Int[np.ndarray, " kept"]) -> ProcessedLogits:
    kept = np.full(len(logits), -np.inf)
    kept[token_ids] = logits[token_ids]
    return kept

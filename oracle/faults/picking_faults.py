"""Faults of drawing and of what is done to logits before: what a request asks for, and does not get."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from oracle.faults.registry import Area, one_replacement
from refinfer.sampling import SampleContext, logits, sampler

_draw_uniform = sampler.draw_uniform
_process_logits = logits.process_logits
_keep_top_p = logits.keep_top_p
_keep_top_k = logits.keep_top_k
_apply_temperature = logits.apply_temperature
_num_draws = [0]


@one_replacement(
    "draws_counted_by_the_engine",
    Area.SAMPLING,
    "a request's random numbers depend on how many were drawn before for anybody",
    sampler,
    "draw_uniform",
)
def draws_counted_by_the_engine(seed: int, sample_index: int, position: int) -> float:  # noqa: ARG001
    """Counts calls."""
    _num_draws[0] += 1
    return _draw_uniform(seed, sample_index, _num_draws[0])


@one_replacement(
    "samples_draw_alike",
    Area.SAMPLING,
    "all samples of a request draw the same numbers",
    sampler,
    "draw_uniform",
)
def samples_draw_alike(seed: int, sample_index: int, position: int) -> float:  # noqa: ARG001
    """Forgets which sample asks."""
    return _draw_uniform(seed, 0, position)


@one_replacement(
    "every_position_draws_alike",
    Area.SAMPLING,
    "a request draws the same number for every position",
    sampler,
    "draw_uniform",
)
def every_position_draws_alike(seed: int, sample_index: int, position: int) -> float:  # noqa: ARG001
    """Forgets the position."""
    return _draw_uniform(seed, sample_index, 0)


@one_replacement(
    "repetition_spares_the_prompt",
    Area.SAMPLING,
    "the repetition penalty sees output tokens only",
    sampler,
    "process_logits",
)
def repetition_spares_the_prompt(row: np.ndarray, context: SampleContext) -> np.ndarray:
    """Hides the prompt."""
    return _process_logits(row, replace(context, prompt_token_ids=()))


@one_replacement(
    "repetition_divides_negatives",
    Area.SAMPLING,
    "the repetition penalty divides negative logits too, and so makes tokens likelier",
    logits,
    "apply_repetition_penalty",
)
def repetition_divides_negatives(row: np.ndarray, penalty: float, token_ids: Iterable[int]) -> np.ndarray:
    """Divides whatever comes."""
    penalised = row.copy()
    penalised[sorted(set(token_ids))] /= penalty
    return penalised


@one_replacement(
    "frequency_counts_once",
    Area.SAMPLING,
    "the frequency penalty counts a token once, however often it was emitted",
    logits,
    "apply_frequency_penalty",
)
def frequency_counts_once(row: np.ndarray, penalty: float, output_token_ids: Iterable[int]) -> np.ndarray:
    """Takes presence for frequency."""
    return logits.apply_presence_penalty(row, penalty, output_token_ids)


@one_replacement(
    "presence_counts_often",
    Area.SAMPLING,
    "the presence penalty is taken as often as a token was emitted",
    logits,
    "apply_presence_penalty",
)
def presence_counts_often(row: np.ndarray, penalty: float, output_token_ids: Iterable[int]) -> np.ndarray:
    """Takes frequency for presence."""
    penalised = row.copy()
    for token_id in output_token_ids:
        penalised[token_id] -= penalty
    return penalised


@one_replacement(
    "logit_bias_ignored",
    Area.SAMPLING,
    "logit_bias is accepted and does nothing",
    logits,
    "add_logit_bias",
)
def logit_bias_ignored(row: np.ndarray, bias_by_token_id: Mapping[int, float]) -> np.ndarray:  # noqa: ARG001
    """Adds nothing."""
    return row


@one_replacement(
    "top_k_keeps_one_more",
    Area.SAMPLING,
    "top_k keeps one token too many",
    logits,
    "keep_top_k",
)
def top_k_keeps_one_more(row: np.ndarray, top_k: int) -> np.ndarray:
    """Counts from 0."""
    return _keep_top_k(row, top_k + 1)


@one_replacement(
    "top_p_leaves_out_the_crossing_token",
    Area.SAMPLING,
    "top_p leaves out the token with which the mass is reached",
    logits,
    "keep_top_p",
)
def top_p_leaves_out_the_crossing_token(row: np.ndarray, top_p: float) -> np.ndarray:
    """Drops the least likely of those that were to stay, if others do."""
    kept = _keep_top_p(row, top_p)
    finite = np.flatnonzero(kept > -np.inf)
    if len(finite) > 1:
        kept[finite[kept[finite].argmin()]] = -np.inf
    return kept


@one_replacement(
    "min_p_of_all_mass",
    Area.SAMPLING,
    "min_p is held against 1 and not against the likeliest token",
    logits,
    "keep_min_p",
)
def min_p_of_all_mass(row: np.ndarray, min_p: float) -> np.ndarray:
    """Cuts by probability, but for the likeliest."""
    kept = np.where(logits.softmax(row) >= min_p, row, -np.inf)
    kept[row.argmax()] = row.max()
    return kept


@one_replacement(
    "temperature_squared",
    Area.SAMPLING,
    "temperature is applied twice",
    logits,
    "apply_temperature",
)
def temperature_squared(row: np.ndarray, temperature: float) -> np.ndarray:
    """Divides once more."""
    return _apply_temperature(_apply_temperature(row, temperature), temperature)


@one_replacement(
    "penalties_see_prompt_as_output",
    Area.SAMPLING,
    "after its prompt was cut into chunks, penalties take prompt tokens for emitted ones",
    sampler,
    "process_logits",
)
def penalties_see_prompt_as_output(row: np.ndarray, context: SampleContext) -> np.ndarray:
    """Hands the prompt over as output."""
    output: Sequence[int] = (*context.prompt_token_ids[-1:], *context.output_token_ids)
    return _process_logits(row, replace(context, output_token_ids=output))


FAULTS = (
    draws_counted_by_the_engine,
    samples_draw_alike,
    every_position_draws_alike,
    repetition_spares_the_prompt,
    repetition_divides_negatives,
    frequency_counts_once,
    presence_counts_often,
    logit_bias_ignored,
    top_k_keeps_one_more,
    top_p_leaves_out_the_crossing_token,
    min_p_of_all_mass,
    temperature_squared,
    penalties_see_prompt_as_output,
)
"""Faults of drawing."""

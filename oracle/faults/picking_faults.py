"""Faults of drawing: where random numbers come from, and among which tokens they choose."""

import numpy as np

from oracle.faults.registry import Area, one_replacement
from refinfer.sampling import logits, sampler

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
    models=("vllm-project/vllm#17524 (10.12)",),
    component=("sampling/sampler.py",),
    needs=("seeded draws",),
    seen_by=("seeded", "symbolic"),
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
    models=None,
    component=("sampling/sampler.py",),
    needs=("seeded draws", "n above 1"),
    seen_by=("seeded", "symbolic", "distribution"),
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
    models=None,
    component=("sampling/sampler.py",),
    needs=("seeded draws",),
    seen_by=("seeded", "symbolic", "distribution"),
)
def every_position_draws_alike(seed: int, sample_index: int, position: int) -> float:  # noqa: ARG001
    """Forgets the position."""
    return _draw_uniform(seed, sample_index, 0)


@one_replacement(
    "top_k_keeps_one_more",
    Area.SAMPLING,
    "top_k keeps one token too many",
    logits,
    "keep_top_k",
    models=None,
    component=("sampling/logits.py",),
    needs=("top_k",),
    seen_by=("seeded", "symbolic", "distribution"),
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
    models=("flashinfer-ai/flashinfer#2202 (10.23)",),
    component=("sampling/logits.py",),
    needs=("top_p",),
    seen_by=("seeded", "symbolic", "distribution"),
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
    models=("sgl-project/sglang-jax#1563 (10.07)",),
    component=("sampling/logits.py",),
    needs=("min_p",),
    seen_by=("seeded", "symbolic", "distribution"),
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
    models=None,
    component=("sampling/logits.py",),
    needs=("temperature",),
    seen_by=("seeded", "symbolic", "distribution"),
)
def temperature_squared(row: np.ndarray, temperature: float) -> np.ndarray:
    """Divides once more."""
    return _apply_temperature(_apply_temperature(row, temperature), temperature)


FAULTS = (
    draws_counted_by_the_engine,
    samples_draw_alike,
    every_position_draws_alike,
    top_k_keeps_one_more,
    top_p_leaves_out_the_crossing_token,
    min_p_of_all_mass,
    temperature_squared,
)
"""Faults of drawing."""

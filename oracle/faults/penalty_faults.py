"""Faults of penalties and of the logit bias: whose tokens count, how often, and in which direction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from oracle.faults.registry import Area, one_replacement
from refinfer.sampling import SampleContext, logits, sampler

_process_logits = logits.process_logits


@one_replacement(
    "repetition_spares_the_prompt",
    Area.SAMPLING,
    "the repetition penalty sees output tokens only",
    sampler,
    "process_logits",
    models=("vllm-project/vllm-metal#69 (10.03)",),
    component=("sampling/logits.py",),
    needs=("repetition penalty",),
    seen_by=("greedy", "symbolic"),
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
    models=None,
    component=("sampling/logits.py",),
    needs=("repetition penalty",),
    seen_by=("greedy", "symbolic"),
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
    models=None,
    component=("sampling/logits.py",),
    needs=("frequency penalty", "repeated tokens"),
    seen_by=("greedy", "symbolic"),
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
    models=None,
    component=("sampling/logits.py",),
    needs=("presence penalty", "repeated tokens"),
    seen_by=("greedy", "symbolic"),
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
    models=None,
    component=("sampling/logits.py",),
    needs=("logit bias",),
    seen_by=("greedy", "symbolic"),
)
def logit_bias_ignored(row: np.ndarray, bias_by_token_id: Mapping[int, float]) -> np.ndarray:  # noqa: ARG001
    """Adds nothing."""
    return row


@one_replacement(
    "penalties_see_prompt_as_output",
    Area.SAMPLING,
    "after its prompt was cut into chunks, penalties take prompt tokens for emitted ones",
    sampler,
    "process_logits",
    models=("vllm-project/vllm-metal#69 (10.03)",),
    component=("sampling/logits.py", "scheduler/request.py"),
    needs=("penalties",),
    seen_by=("greedy", "symbolic"),
)
def penalties_see_prompt_as_output(row: np.ndarray, context: SampleContext) -> np.ndarray:
    """Hands the prompt over as output."""
    output: Sequence[int] = (*context.prompt_token_ids[-1:], *context.output_token_ids)
    return _process_logits(row, replace(context, output_token_ids=output))


FAULTS = (
    repetition_spares_the_prompt,
    repetition_divides_negatives,
    frequency_counts_once,
    presence_counts_often,
    logit_bias_ignored,
    penalties_see_prompt_as_output,
)
"""Faults of penalties."""

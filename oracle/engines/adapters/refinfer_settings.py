"""What the modes of `refinfer` take, and how the words of the protocol are theirs and the other way round."""

from collections.abc import Mapping, Sequence
from typing import Any

from oracle.engines.adapter import Refused
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample
from refinfer import CompletionOutput, RequestOutput, SamplingParams
from refinfer.config.engine_config import CACHES_BY_OPTION

MAX_MODEL_LEN = 64
"""Short, so that a pool which holds one longest request and no more makes requests give way to each other."""

OPTIONS_BY_MODE: dict[str, dict[str, str]] = {
    "none": {"cache": "none"},
    "static": {"cache": "static"},
    "continuous": {"cache": "continuous"},
    "paged": {"cache": "paged", "paged_attention": "blocks"},
    "paged-gather": {"cache": "paged", "paged_attention": "gather"},
}
"""The settings of `EngineConfig` that stand for a mode."""

SELF = "self"
"""The value of the knob "speculative" that lets the model guess for itself, so that all guesses are right."""

_BLOCK_SIZES = (16, 4, 1)
_NUMS_BLOCKS = (None, 4, 16, 64)

_KNOBS: dict[str, list[Any]] = {
    "max_num_seqs": [8, 1, 3],
    "max_num_batched_tokens": [None, 16, 5],
    "scheduling": ["running_first", "prefill_first"],
    "block_size": list(_BLOCK_SIZES),
    "num_blocks": list(_NUMS_BLOCKS),
    "enable_prefix_caching": [True, False],
    "preemption": ["recompute", "swap"],
    "num_swap_blocks": [None, 3],
    "placement_seed": [None, 1],
    "speculative": [None, "ngram", SELF],
    "num_speculative_tokens": [None, 1, 3],
}
"""All knobs; a mode has those that its cache takes."""

SAME_PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "n",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
    "prompt_logprobs",
)
"""Parameters that `SamplingParams` knows by the same name, with the same meaning."""

PARAMETER_ORDER = (
    "min_tokens",
    "logit_bias",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "temperature",
    "min_p",
    "top_k",
    "top_p",
)

COUNTED = {
    "preemptions": "num_preemptions",
    "swaps": "num_swaps",
    "cached_tokens": "num_hit_tokens",
    "proposed_tokens": "num_proposed_tokens",
    "accepted_tokens": "num_accepted_tokens",
    "forks": "num_forks",
    "copied_blocks": "num_copied_blocks",
    "evicted_blocks": "num_evicted_blocks",
}
"""Witnesses, each with what `EngineStats` calls it, counted since the engine was built."""

WITNESSES = ("steps", "max_batch", "chunks", *COUNTED, "held_blocks")


def knobs_of(mode: str) -> tuple[dict[str, list[Any]], tuple[dict[str, Any], ...]]:
    """Gives the knobs of a mode, and which of their values do not go together.

    Of the pools only those are left that hold exactly one longest request: smaller ones are refused, and in larger
    ones nobody has to give way.
    """
    cache = OPTIONS_BY_MODE[mode]["cache"]
    knobs = {name: values for name, values in _KNOBS.items() if cache in CACHES_BY_OPTION.get(name, (cache,))}
    if "block_size" not in knobs:
        return knobs, ()
    other_pools = [
        {"block_size": block_size, "num_blocks": num_blocks}
        for block_size in _BLOCK_SIZES
        for num_blocks in _NUMS_BLOCKS
        if num_blocks is not None and block_size * num_blocks != MAX_MODEL_LEN
    ]
    guessless = [{"speculative": None, "num_speculative_tokens": num_tokens} for num_tokens in (1, 3)]
    return knobs, (*other_pools, *guessless)


def sampling_params(request: EngineRequest, *, takes_salt: bool) -> SamplingParams:
    """Translates what a request asks for; whether its values are in range is for `SamplingParams` to say.

    Args:
        request: The request; its salt goes beside the parameters, and its logits are seen by the adapter.
        takes_salt: Whether a salt means something to the engine.

    Raises:
        Refused: It asks for what there is not.
        SamplingParamsError: A value cannot be.
    """
    besides = ("logits", "cache_salt") if takes_salt else ("logits",)
    values = {name: value for name, value in request.parameters.items() if name not in besides}
    if not isinstance(request.parameters.get("logits", False), bool):
        message = f"logits is {request.parameters['logits']!r}; it must be true or false"
        raise Refused(message)
    pairs = values.pop("logit_bias", None)
    unknown = sorted(set(values) - set(SAME_PARAMETERS))
    if unknown:
        message = f"SamplingParams has no {', '.join(unknown)}"
        raise Refused(message)
    try:
        bias = None if pairs is None else {token_id: value for token_id, value in pairs}  # noqa: C416 - pairs only
    except (TypeError, ValueError) as error:
        message = f"logit_bias {pairs!r} is no list of pairs"
        raise Refused(message) from error
    if bias is not None and len(bias) < len(pairs):
        message = f"logit_bias {pairs!r} names a token twice, and SamplingParams takes one value for each"
        raise Refused(message)
    return SamplingParams(max_tokens=request.max_tokens, logit_bias=bias, **values)


def to_sample(output: CompletionOutput, logits: Sequence[Sequence[float]] | None) -> EngineSample:
    """Translates an answer; all log-probabilities given are passed on, the chosen token's among them."""
    rows = output.logprobs
    token_ids = tuple(output.token_ids)
    return EngineSample(
        token_ids=token_ids,
        finish_reason=output.finish_reason,
        stop_token_id=output.stop_reason if isinstance(output.stop_reason, int) else None,
        logprobs=None if rows is None else tuple(row[t].logprob for row, t in zip(rows, token_ids, strict=True)),
        top_logprobs=None if rows is None else tuple({t: own.logprob for t, own in row.items()} for row in rows),
        logits=None if logits is None else tuple(tuple(row) for row in logits),
    )


def to_output(output: RequestOutput, logits_by_index: Mapping[int, Sequence[Sequence[float]]] | None) -> EngineOutput:
    """Translates all answers to a request.

    Args:
        output: What the engine gave last.
        logits_by_index: For each answer its rows of logits; None where they were not asked for.
    """
    prompt_rows = output.prompt_logprobs
    return EngineOutput(
        request_id=output.request_id,
        samples=tuple(
            to_sample(own, None if logits_by_index is None else logits_by_index[own.index]) for own in output.outputs
        ),
        prompt_logprobs=None
        if prompt_rows is None
        else tuple(None if row is None else {t: own.logprob for t, own in row.items()} for row in prompt_rows),
    )

"""What mini-infer takes, and how the words of the protocol become its own; nothing here needs it installed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

MAX_MODEL_LEN = 64
"""Short, so that a pool which holds one longest request and little more makes requests give way to each other."""

_BLOCK_SIZES = (16, 32, 4)
_NUMS_BLOCKS = (256, 5, 17)

CONFIG_FORMATS = ("legacy", "transformers-5")
"""Whether the checkpoint has `rope_theta` where older transformers wrote it, or only where newer ones do."""

KNOBS: dict[str, list[Any]] = {
    "config_format": list(CONFIG_FORMATS),
    "block_size": list(_BLOCK_SIZES),
    "num_blocks": list(_NUMS_BLOCKS),
    "max_batch_size": [8, 1, 3],
    "chunked_prefill_size": [512, 16, 5],
    "enable_prefix_caching": [False, True],
}

PARAMETERS = ("temperature", "top_k", "top_p", "min_p", "ignore_eos", "stop_token_ids")

_PARAMETER_ORDER = ("temperature", "top_k", "min_p", "top_p")
"""As `sample_next_token` has them."""

WITNESSES = ("steps", "max_batch", "chunks", "preemptions", "cached_tokens", "held_blocks")


def declaration_of(version: str) -> EngineDeclaration:
    """Gives what mini-infer claims, takes and shows."""
    too_small = (
        {"block_size": block_size, "num_blocks": number}
        for block_size in _BLOCK_SIZES
        for number in _NUMS_BLOCKS
        if block_size * number < MAX_MODEL_LEN
    )
    # What the newer format changes would hide what other settings do.
    mixed = (
        {"config_format": "transformers-5", name: value}
        for name, values in KNOBS.items()
        if name != "config_format"
        for value in values[1:]
    )
    return EngineDeclaration(
        name="mini-infer",
        version=version,
        capabilities=("batching", "arrivals", "steps", "pool"),
        parameters=PARAMETERS,
        parameter_order=_PARAMETER_ORDER,
        knobs=KNOBS,
        excluded_knobs=(*too_small, *mixed),
        families=("qwen2",),
        max_model_len=MAX_MODEL_LEN,
        witnesses=WITNESSES,
    )


def unknown_parameters(request: EngineRequest) -> list[str]:
    """Names what a request asks for that mini-infer does not have."""
    return sorted(set(request.parameters) - set(PARAMETERS))


def sampling_arguments(request: EngineRequest, eos_token_ids: Iterable[int]) -> dict[str, Any]:
    """Translates for its `SamplingParams`; it knows no EOS, so that its callers pass it among the stop tokens."""
    parameters: Mapping[str, Any] = request.parameters
    arguments: dict[str, Any] = {"max_tokens": request.max_tokens}
    arguments |= {name: parameters[name] for name in ("temperature", "top_p", "min_p", "top_k") if name in parameters}
    eos = () if parameters.get("ignore_eos") else eos_token_ids
    return arguments | {"stop_token_ids": {*eos, *(parameters.get("stop_token_ids") or ())}}


def eos_token_ids_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Gives the ids that end a request, from a checkpoint's configuration."""
    value = config.get("eos_token_id")
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def legacy_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Gives a configuration with the base of RoPE where older transformers wrote it."""
    rope = config.get("rope_parameters") or {}
    return {**config, **({"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {})}


def to_output(request_id: str, token_ids: Sequence[int]) -> EngineOutput:
    """Translates what a sequence has; why it ended, mini-infer does not say."""
    return EngineOutput(request_id, (EngineSample(tuple(token_ids)),))

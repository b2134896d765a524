"""What transformers' continuous batching takes: settings of a manager, and what each request of it may choose."""

from collections.abc import Mapping
from typing import Any

from oracle.engines.declaration import EngineDeclaration

MAX_MODEL_LEN = 48
"""Short, so that a pool which holds one longest request and little more makes requests give way to each other."""

_PAGE_SIZES = (16, 4, 5)
_NUMS_BLOCKS = (64, 13, 4)

KNOBS: dict[str, list[Any]] = {
    "attn_implementation": ["sdpa", "eager"],
    "page_size": list(_PAGE_SIZES),
    "num_blocks": list(_NUMS_BLOCKS),
    "max_batch_tokens": [128, 16, 5],
    "max_requests_per_batch": [None, 2],
    "allow_block_sharing": [True, False],
    "scheduler_type": ["fifo", "prefill_first"],
    "safety_margin": [None, 0.0],
}

_FAMILIES_WITHOUT_SDPA = ("gemma2", "gpt_oss")

FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "gpt2",
    "starcoder2",
    "olmo",
    "olmo2",
    "cohere",
    "cohere2",
    "granite",
    "smollm3",
    "glm",
    "glm4",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "gpt_oss",
)
"""Families whose attention goes through the paged cache."""

PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "n",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
)

_PARAMETER_ORDER = ("temperature", "top_k", "top_p")
"""As `GenerationMixin._get_logits_processor` lines them up."""

WITNESSES = ("steps", "max_batch", "chunks", "preemptions", "cached_tokens", "aborts", "held_blocks")

DEFAULT_TEMPERATURE = 0.5
DEFAULT_TOP_P = 0.5
"""What a manager has so that its processors exist at all; each request overrides both."""


def declaration_of(version: str) -> EngineDeclaration:
    """Gives what continuous batching claims, takes and shows."""
    too_small = (
        {"page_size": page_size, "num_blocks": number}
        for page_size in _PAGE_SIZES
        for number in _NUMS_BLOCKS
        if page_size * number < MAX_MODEL_LEN
    )
    return EngineDeclaration(
        name="hf-generate-batch",
        version=version,
        capabilities=("logprobs", "batching", "arrivals", "aborts", "steps", "pool"),
        parameters=PARAMETERS,
        parameter_values={"logprobs": [0]},
        parameter_order=_PARAMETER_ORDER,
        needed_parameters={"n": "temperature"},
        knobs=KNOBS,
        excluded_knobs=(
            *too_small,
            *({"family": family, "attn_implementation": "sdpa"} for family in _FAMILIES_WITHOUT_SDPA),
        ),
        families=FAMILIES,
        scores_of="processed",
        max_model_len=MAX_MODEL_LEN,
        witnesses=WITNESSES,
    )


def unknown_parameters(parameters: Mapping[str, Any]) -> list[str]:
    """Names what a request asks for that no request of a manager can have.

    Penalties and least lengths a manager drops with a warning; of other processors it warns that they might not work.
    """
    return sorted(set(parameters) - set(PARAMETERS))


def manager_parameters(parameters: Mapping[str, Any], *, return_logprobs: bool) -> dict[str, Any]:
    """Gives what of a request is fixed for all requests of a manager, as plain data."""
    is_sampled = float(parameters.get("temperature", 0.0)) != 0.0
    return {"is_sampled": is_sampled, "n": parameters.get("n", 1), "return_logprobs": return_logprobs}


def generation_arguments(fixed: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Translates what is fixed for a manager, for `GenerationConfig`; requests bring their own ends and lengths."""
    arguments: dict[str, Any] = {
        "do_sample": fixed["is_sampled"],
        "num_return_sequences": fixed["n"],
        "eos_token_id": -1,
        "max_new_tokens": 1,
    }
    if fixed["is_sampled"]:
        arguments |= {"temperature": DEFAULT_TEMPERATURE, "top_k": vocab_size, "top_p": DEFAULT_TOP_P}
    return arguments


def batching_arguments(knobs: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Translates knobs, for `ContinuousBatchingConfig`; what a machine without an accelerator has not is off."""
    return {
        **{name: value for name, value in knobs.items() if name != "attn_implementation"},
        "return_logprobs": fixed["return_logprobs"],
        "per_request_processors": True,
        "seed": 0,
        "use_cuda_graph": False,
        "use_async_batching": False,
        "auto_switch_to_flash": False,
    }


def request_arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Translates what a request chooses for itself, for `add_request`; `top_k` stays the manager's unless named."""
    if float(parameters.get("temperature", 0.0)) == 0.0:
        return {}
    arguments = {"temperature": float(parameters["temperature"]), "top_p": float(parameters.get("top_p", 1.0))}
    return arguments | {name: parameters[name] for name in ("top_k",) if name in parameters}

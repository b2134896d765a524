"""What transformers' `generate` takes, and how the words of the protocol become those of its `GenerationConfig`."""

from collections.abc import Iterable, Mapping
from typing import Any

from oracle.engines.declaration import EngineDeclaration

MAX_MODEL_LEN = 256

SPECULATIONS = ("none", "prompt-lookup", "assistant", "early-exit")
"""Whose guesses are checked: nobody's, those of `prompt_lookup_num_tokens`, of a second model that is the same, or of
the model's own first layer."""

NUM_LOOKUP_TOKENS = 3
NUM_EARLY_LAYERS = 1

PAD_TOKENS = ("zero", "end")
"""Which token pads: 0, or the first that ends a request, as `generate` itself would have it."""

_SHARED_KNOBS: dict[str, list[Any]] = {
    "attn_implementation": ["sdpa", "eager"],
    "cache_implementation": ["dynamic", "static"],
    "use_cache": [True, False],
    "prefill_chunk_size": [None, 3, 16],
}

KNOBS_ALONE: dict[str, list[Any]] = {**_SHARED_KNOBS, "speculation": list(SPECULATIONS)}
KNOBS_PADDED: dict[str, list[Any]] = {**_SHARED_KNOBS, "pad_token": list(PAD_TOKENS)}

_FAMILIES_WITHOUT_SDPA = ("gemma2", "bloom", "gpt_oss", "mamba")
_FAMILIES_WITHOUT_CHUNKS = ("mamba", "recurrent_gemma")
_FAMILIES_WITHOUT_SPECULATION = ("mamba", "recurrent_gemma")
"""Models that it calls stateful."""

_FAMILIES_WITH_WINDOWS = ("mistral", "gemma2", "gemma3_text", "starcoder2", "cohere2", "gpt_oss")
"""Whose static caches it cannot roll back after guesses, as it says once there are any."""

_FAMILIES_WITH_EARLY_EXIT = ("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3", "olmo2", "granite", "smollm3")
"""Those whose forward pass stops after as many layers as their configuration says when it runs."""

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
    "gpt_neox",
    "opt",
    "bloom",
    "falcon",
    "stablelm",
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
    "mamba",
    "recurrent_gemma",
)
"""Families whose folders it opens; there are more than these that the harness generates."""

PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "n",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_token_sequences",
    "no_repeat_ngram_size",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
    "logits",
)

PARAMETER_ORDER = (
    "logit_bias",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "bad_token_sequences",
    "min_tokens",
    "allowed_token_ids",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
)
"""As `GenerationMixin._get_logits_processor` lines them up."""

WITNESSES_ALONE = ("forwards", "chunks", "accepted_tokens")
WITNESSES_PADDED = ("forwards", "chunks", "padding_tokens", "max_batch")


def exclusions(knobs: Mapping[str, Iterable[Any]]) -> tuple[dict[str, Any], ...]:
    """Gives the combinations of these knobs, and of families, that it refuses or in which a setting means nothing."""
    excluded: list[dict[str, Any]] = [{"use_cache": False, "cache_implementation": "static"}]
    excluded += [{"use_cache": False, "prefill_chunk_size": size} for size in (3, 16)]
    excluded += [{"family": family, "attn_implementation": "sdpa"} for family in _FAMILIES_WITHOUT_SDPA]
    excluded += [
        {"family": family, "prefill_chunk_size": size} for family in _FAMILIES_WITHOUT_CHUNKS for size in (3, 16)
    ]
    if "speculation" not in knobs:
        return tuple(excluded)
    for speculation in SPECULATIONS[1:]:
        excluded.append({"speculation": speculation, "use_cache": False})
        excluded += [{"speculation": speculation, "prefill_chunk_size": size} for size in (3, 16)]
        excluded += [{"speculation": speculation, "family": family} for family in _FAMILIES_WITHOUT_SPECULATION]
        excluded += [
            {"speculation": speculation, "cache_implementation": "static", "family": family}
            for family in _FAMILIES_WITH_WINDOWS
        ]
    late = (family for family in FAMILIES if family not in _FAMILIES_WITH_EARLY_EXIT)
    return (*excluded, *({"speculation": "early-exit", "family": family} for family in late))


def declaration_alone(version: str) -> EngineDeclaration:
    """Gives what `generate` claims, takes and shows for requests one by one."""
    return EngineDeclaration(
        name="hf-generate",
        version=version,
        contract="error-bounded",
        capabilities=("logprobs", "top_logprobs", "logits", "seeded_sampling"),
        parameters=PARAMETERS,
        parameter_order=PARAMETER_ORDER,
        needed_parameters={"n": "temperature"},
        knobs=KNOBS_ALONE,
        excluded_knobs=exclusions(KNOBS_ALONE),
        knobs_without_parameters=tuple(
            {"knobs": {"speculation": speculation}, "parameters": ["n"]} for speculation in SPECULATIONS[1:]
        ),
        families=FAMILIES,
        scores_of="processed",
        max_model_len=MAX_MODEL_LEN,
        witnesses=WITNESSES_ALONE,
    )


def declaration_padded(version: str) -> EngineDeclaration:
    """Gives what `generate` claims, takes and shows for a batch that shares one `GenerationConfig`."""
    return EngineDeclaration(
        name="hf-generate-padded",
        version=version,
        contract="error-bounded",
        capabilities=("logprobs", "top_logprobs", "logits", "batching"),
        parameters=PARAMETERS,
        parameter_order=PARAMETER_ORDER,
        needed_parameters={"n": "temperature"},
        shares_parameters=True,
        knobs=KNOBS_PADDED,
        excluded_knobs=exclusions(KNOBS_PADDED),
        families=FAMILIES,
        scores_of="processed",
        max_model_len=MAX_MODEL_LEN,
        witnesses=WITNESSES_PADDED,
    )


def stop_token_ids_of(parameters: Mapping[str, Any], eos_token_ids: Iterable[int]) -> list[int]:
    """Gives the ids that end one request, which `generate` all calls EOS."""
    eos = () if parameters.get("ignore_eos") else eos_token_ids
    return list(dict.fromkeys((*eos, *(parameters.get("stop_token_ids") or ()))))


def generation_arguments(parameters: Mapping[str, Any], max_tokens: int, stop_token_ids: list[int]) -> dict[str, Any]:
    """Translates what a request asks for; what it does not name stays unset, but for filters that are on by default."""
    arguments: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "do_sample": False,
        "eos_token_id": stop_token_ids or None,
        "num_return_sequences": parameters.get("n", 1),
        "return_dict_in_generate": True,
        "output_scores": parameters.get("logprobs") is not None,
        "output_logits": bool(parameters.get("logits")),
        "disable_compile": True,
    }
    temperature = float(parameters.get("temperature", 0.0))
    if temperature != 0.0:
        arguments |= {"do_sample": True, "temperature": temperature}
        arguments |= {"top_k": parameters.get("top_k", 0), "top_p": parameters.get("top_p", 1.0)}
        if "min_p" in parameters:
            arguments["min_p"] = parameters["min_p"]
    for name, own in _SAME_VALUES.items():
        if name in parameters:
            arguments[own] = parameters[name]
    if parameters.get("logit_bias"):
        arguments["sequence_bias"] = [[[int(token_id)], float(value)] for token_id, value in parameters["logit_bias"]]
    if parameters.get("bad_token_sequences"):
        arguments["bad_words_ids"] = [list(sequence) for sequence in parameters["bad_token_sequences"]]
    return arguments


_SAME_VALUES = {
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "min_tokens": "min_new_tokens",
}
"""Parameters that are passed on as they are, with `generate`'s names."""


def knob_arguments(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Translates knobs that `GenerationConfig` holds; caches are dynamic where none is named."""
    arguments: dict[str, Any] = {"use_cache": knobs["use_cache"]}
    if knobs["cache_implementation"] != "dynamic":
        arguments["cache_implementation"] = knobs["cache_implementation"]
    if knobs["prefill_chunk_size"] is not None:
        arguments["prefill_chunk_size"] = knobs["prefill_chunk_size"]
    if knobs.get("speculation") == "prompt-lookup":
        arguments["prompt_lookup_num_tokens"] = NUM_LOOKUP_TOKENS
    if knobs.get("speculation") == "early-exit":
        arguments["assistant_early_exit"] = NUM_EARLY_LAYERS
    return arguments


def pad_token_id_of(pad_token: str, stop_token_ids: list[int]) -> int:
    """Gives the token that pads."""
    return stop_token_ids[0] if pad_token == "end" and stop_token_ids else 0

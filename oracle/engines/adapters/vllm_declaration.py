"""What vLLM on CPU says of itself: the parameters, settings and witnesses of its adapters, in plain data."""

from dataclasses import replace
from typing import Any

from oracle.engines.declaration import EngineDeclaration

BLOCK_SIZES = (128, 32)
"""The usual one, and the smallest: attention on CPU takes multiples of 32 only, and only whole blocks are shared."""

MAX_MODEL_LEN = 96
"""Short, so that a pool may be so small that few requests fill it."""

_FAMILIES = (
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
)

_PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "n",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_token_sequences",
    "choices",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
    "prompt_logprobs",
    "priority",
    "cache_salt",
)

# A grammar's mask comes before the sampler, whose own order `vllm.v1.sample.sampler.Sampler` gives.
_ORDER = (
    "choices",
    "allowed_token_ids",
    "bad_token_sequences",
    "min_tokens",
    "logit_bias",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "min_p",
    "top_k",
    "top_p",
)

_KNOBS: dict[str, list[Any]] = {
    "block_size": list(BLOCK_SIZES),
    "num_blocks": [64, 4],
    "max_num_batched_tokens": [1024, 48, 16],
    "max_num_seqs": [8, 3, 1],
    "enable_prefix_caching": [False, True],
    "async_scheduling": [False, True],
    "policy": ["fcfs", "priority"],
    "long_prefill_token_threshold": [0, 8],
    "reserve_full_prompt": [True, False],
    "split_kv": [True, False],
}
"""What may change how requests are run, and may not change what comes out; `num_blocks` counts the null block."""

_LOOKUPS = ("ngram-3", "ngram-1", "ngram-5-of-2")

_EXCLUDED_PARAMETERS = (
    # A grammar takes stop tokens for its own end, waives `min_tokens` there, and lets anything follow an EOS.
    ("choices", "stop_token_ids"),
    ("choices", "min_tokens"),
    ("choices", "ignore_eos"),
    # Where these leave no token, the request ends with an error.
    ("choices", "allowed_token_ids"),
    ("choices", "bad_token_sequences"),
)

PLAIN = EngineDeclaration(
    name="vllm",
    contract="error-bounded",
    capabilities=(
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "seeded_sampling",
        "batching",
        "arrivals",
        "aborts",
        "steps",
        "pool",
    ),
    parameters=_PARAMETERS,
    parameter_order=_ORDER,
    excluded_parameters=_EXCLUDED_PARAMETERS,
    needed_parameters={"n": "temperature"},
    knobs=_KNOBS,
    families=_FAMILIES,
    head_dims=(32, 64, 96, 128),
    max_model_len=MAX_MODEL_LEN,
    witnesses=("steps", "preemptions", "cached_tokens", "max_batch", "chunked_prompts", "blocks_held"),
)
"""Without speculation, log-probabilities of the model: the engine's defaults."""

SPECULATIVE = replace(
    PLAIN,
    name="vllm-speculative",
    capabilities=tuple(name for name in PLAIN.capabilities if name != "seeded_sampling"),
    parameters=tuple(name for name in _PARAMETERS if name not in ("min_p", "logit_bias")),
    knobs={
        "speculation": [*_LOOKUPS, "draft-2"],
        **_KNOBS,
    },
    # Tokens that are looked up come too late for a schedule made ahead.
    excluded_knobs=tuple({"speculation": name, "async_scheduling": True} for name in _LOOKUPS),
    witnesses=(*PLAIN.witnesses, "drafted_tokens", "accepted_tokens", "rejected_tokens"),
)
"""With speculation, which refuses two parameters, and whose drafts may take from a seed's stream as company decides."""

LOGITS = replace(
    PLAIN,
    name="vllm-logits",
    capabilities=(*(name for name in PLAIN.capabilities if "logprobs" not in name), "logits"),
    parameters=(*(name for name in _PARAMETERS if "logprobs" not in name), "logits"),
)
"""With `logprobs_mode="raw_logits"`, in which rows of logits stand where log-probabilities would."""

PROCESSED = replace(PLAIN, name="vllm-processed", scores_of="processed")
"""With `logprobs_mode="processed_logprobs"`."""

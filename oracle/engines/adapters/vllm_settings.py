"""How do the harness's knobs read as vLLM's arguments? Plain translation, without vLLM itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.engines.adapters.vllm_declaration import MAX_MODEL_LEN

_SAME_NAME = (
    "block_size",
    "max_num_batched_tokens",
    "max_num_seqs",
    "enable_prefix_caching",
    "async_scheduling",
    "long_prefill_token_threshold",
)
_OTHER_NAME = {
    "num_blocks": "num_gpu_blocks_override",
    "policy": "scheduling_policy",
    "reserve_full_prompt": "scheduler_reserve_full_isl",
}
_VARIABLE_BY_KNOB = {"split_kv": "VLLM_CPU_ATTN_SPLIT_KV"}


@dataclass(frozen=True)
class Settings:
    """How an engine is opened.

    Attributes:
        arguments: Of vLLM's `EngineArgs`.
        environment: Variables that vLLM reads while it runs.
    """

    arguments: dict[str, Any]
    environment: dict[str, str]


def settings_of(knobs: Mapping[str, Any], folder: Path, tokenizer: Path, logprobs_mode: str) -> Settings:
    """Translates knobs.

    Args:
        knobs: One value for each knob of the declaration.
        folder: The checkpoint.
        tokenizer: The folder of a tokenizer.
        logprobs_mode: What vLLM shows as log-probabilities.

    Raises:
        ValueError: A knob is unknown.
    """
    known = {*_SAME_NAME, *_OTHER_NAME, *_VARIABLE_BY_KNOB, "speculation"}
    unknown = sorted(set(knobs) - known)
    if unknown:
        message = f"vLLM's adapter has no knob {', '.join(unknown)}"
        raise ValueError(message)
    arguments: dict[str, Any] = {
        "model": str(folder),
        "tokenizer": str(tokenizer),
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": MAX_MODEL_LEN,
        "max_logprobs": -1,
        "logprobs_mode": logprobs_mode,
        "seed": 0,
        "disable_log_stats": False,
    }
    arguments |= {name: knobs[name] for name in _SAME_NAME if name in knobs}
    arguments |= {other: knobs[name] for name, other in _OTHER_NAME.items() if name in knobs}
    if knobs.get("speculation") is not None:
        arguments["speculative_config"] = speculation_of(knobs["speculation"], folder)
    environment = {variable: str(int(knobs[name])) for name, variable in _VARIABLE_BY_KNOB.items() if name in knobs}
    return Settings(arguments, environment)


def speculation_of(name: str, folder: Path) -> dict[str, Any]:
    """Gives vLLM's `speculative_config` for a way of speculating.

    Args:
        name: "ngram-K" and "ngram-K-of-N" look K drafts up after a repeat of 1 token at least, or of N;
            "draft-K" lets the model draft K tokens for itself.
        folder: The checkpoint.

    Raises:
        ValueError: The name has another form.
    """
    match name.split("-"):
        case ["ngram", number, *rest]:
            least = int(rest[1]) if rest else 1
            return {
                "method": "ngram",
                "num_speculative_tokens": int(number),
                "prompt_lookup_min": least,
                "prompt_lookup_max": max(least, 3),
            }
        case ["draft", number]:
            return {"method": "draft_model", "model": str(folder), "num_speculative_tokens": int(number)}
    message = f"{name!r} names no way of speculating"
    raise ValueError(message)

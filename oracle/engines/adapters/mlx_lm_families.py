"""Which families does mlx-lm open, and which of them not in every way? Nothing here needs it installed."""

from typing import Any

CONFIGS = ("published", "transformers 5")
"""By which names the configuration goes: those of published checkpoints besides, or those of transformers 5 alone."""

FAMILIES = (
    "llama",
    "qwen3",
    "mistral",
    "qwen2",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "starcoder2",
    "olmo2",
    "cohere",
    "cohere2",
    "granite",
    "smollm3",
    "glm",
    "glm4",
    "stablelm",
    "gpt_neox:wide",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "ernie4_5_moe",
    "mamba",
    "jamba",
    "falcon_h1",
    "granitemoehybrid",
    "recurrent_gemma:one-key-head",
)
"""Families whose weights it takes as transformers writes them, in the widths that it takes."""

_RECURRENT = ("mamba", "jamba", "falcon_h1", "granitemoehybrid", "recurrent_gemma")
"""Families with a state that cannot be taken back."""

_NEEDING_PUBLISHED_NAMES = (
    "gemma3_text",
    "cohere2",
    "granite",
    "glm4",
    "stablelm",
    "gpt_neox",
    "qwen3_moe",
    "ernie4_5_moe",
    "granitemoehybrid",
    "recurrent_gemma",
)
"""Families that it does not open by the names of transformers 5 alone, two layers deep."""

_UNKNOWN_SHAPES = (
    "gemma2:no-caps",
    "phi:normed-queries",
    "starcoder2:unbiased",
    "qwen2_moe:dense-first",
    "qwen3:biased",
)
"""Variants that it does not open."""


def exclusions_of_families() -> tuple[dict[str, Any], ...]:
    """Gives the combinations with a family or a variant that mlx-lm refuses."""
    return (
        *({"way": "speculative", "family": family} for family in _RECURRENT),
        *({"config": CONFIGS[1], "family": family} for family in _NEEDING_PUBLISHED_NAMES),
        *({"family": shape} for shape in _UNKNOWN_SHAPES),
        {"config": CONFIGS[0], "family": "qwen2_moe:yarn-rope"},
    )

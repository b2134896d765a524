"""The engines of the comparisons, by name, and how each is set up."""

from functools import partial
from typing import Any

from tests.benchmarks.comparison import Opener
from tests.benchmarks.drivers import refinfer
from tests.benchmarks.hugging_face import generate, generate_batch
from tests.benchmarks.vllm_process import vllm

MAX_NUM_SEQS = 16
MAX_NUM_BATCHED_TOKENS = 512

_CHUNKED: dict[str, Any] = {"max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS}
PAGED: dict[str, Any] = {
    "cache": "paged",
    **_CHUNKED,
    "max_num_seqs": MAX_NUM_SEQS,
    "enable_prefix_caching": False,
}
"""How the paged engine is set up beside others."""


def modes(max_num_seqs: int = MAX_NUM_SEQS, *, batch_invariant: bool = True) -> dict[str, Opener]:
    """The engine of this project, once for each way of keeping keys and values."""
    shared: dict[str, Any] = {"max_num_seqs": max_num_seqs, "batch_invariant": batch_invariant}
    return {
        "none": partial(refinfer, cache="none", **shared),
        "static": partial(refinfer, cache="static", **shared),
        "continuous": partial(refinfer, cache="continuous", **_CHUNKED, **shared),
        "paged": partial(refinfer, **{**PAGED, **shared}),
    }


def manners() -> dict[str, Opener]:
    """The paged engine in both manners of numerics."""
    return {
        "refinfer exact": partial(refinfer, **PAGED),
        "refinfer plain": partial(refinfer, **PAGED, batch_invariant=False),
    }


def hugging_face() -> dict[str, Opener]:
    """Three ways of transformers."""
    return {
        "HF generate, one by one": generate,
        "HF generate, static 16": partial(generate, batch_size=MAX_NUM_SEQS),
        "HF generate_batch, pages of 256": partial(generate_batch, max_batch_tokens=MAX_NUM_BATCHED_TOKENS),
        "HF generate_batch, pages of 32": partial(
            generate_batch, max_batch_tokens=MAX_NUM_BATCHED_TOKENS, page_size=32
        ),
    }


def peers(*, with_vllm: bool = True, max_num_seqs: int = MAX_NUM_SEQS) -> dict[str, Opener]:
    """Every engine; Hugging Face alone comes first, since it says which tokens are right."""
    of_vllm: dict[str, Opener] = {
        f"vLLM CPU, {max_num_seqs} seqs": partial(vllm, max_num_seqs=max_num_seqs, **_CHUNKED)
    }
    return {**hugging_face(), **(of_vllm if with_vllm else {}), **manners()}


def prefix_sharing() -> dict[str, Opener]:
    """The paged engine with and without its prefix cache, in both manners of numerics."""
    shared: dict[str, Any] = {"cache": "paged", **_CHUNKED, "max_num_seqs": MAX_NUM_SEQS}
    return {
        f"{manner}, {word} prefix caching": partial(
            refinfer, **shared, enable_prefix_caching=word == "with", batch_invariant=manner == "exact"
        )
        for manner in ("exact", "plain")
        for word in ("without", "with")
    }

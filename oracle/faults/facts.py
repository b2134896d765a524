"""What is known of a planted fault: whose bug it was, where it sits, what it needs, and what should see it."""

from typing import Literal, TypedDict

Need = Literal[
    "abort",
    "attention bias",
    "batch",
    "block border",
    "bytes of a character",
    "chat",
    "chunks",
    "continuous cache",
    "copy on write",
    "draft model",
    "eviction",
    "frequency penalty",
    "full pool",
    "gather reader",
    "grouped heads",
    "half precision",
    "hit",
    "logit bias",
    "logprobs",
    "longest row ends first",
    "max_model_len",
    "min_p",
    "min_tokens",
    "miss in the same step",
    "mixed parameters",
    "n above 1",
    "penalties",
    "prefill first",
    "preemption",
    "presence penalty",
    "prompt logprobs",
    "refused admission",
    "rejected guess",
    "repetition penalty",
    "repeated tokens",
    "rope scaling",
    "salt",
    "scattered blocks",
    "seeded draws",
    "several eos ids",
    "shared blocks",
    "special tokens",
    "speculation",
    "static batch",
    "stop string",
    "stop token",
    "swap",
    "temperature",
    "tied head",
    "ties",
    "top_k",
    "top_p",
    "two ends in one step",
    "uneven ends",
    "unseeded draws",
    "untied head",
]
"""A feature that a fault needs in order to show, beyond the simplest run: one greedy request in one chunk, in a pool
with ample room, of a plain checkpoint. A fault that names two of them needs both at once."""

Sight = Literal[
    "reference logits",
    "bitwise",
    "greedy",
    "seeded",
    "symbolic",
    "state",
    "poison",
    "lifecycle",
    "distribution",
    "contract",
    "text",
    "loader",
]
"""A way of looking: logits against the reference; logits bit by bit, and greedy or seeded tokens, across companies,
schedules and caches; the symbolic model; invariants of the state between steps; memory that holds NaN until it is
written; leaks, progress and crashes; the law of drawn tokens; the promises of what is given back; text against all ids
decoded at once; and what a checkpoint with one thing wrong does to its loader."""


class Facts(TypedDict):
    """What each fault tells of itself.

    Attributes:
        models: The public issues or pull requests that it models, as "owner/repository#number", each with its number
            in the catalogue of public bugs that the list was chosen from, in brackets; None where nobody is known to
            have shipped it and the fault is our own invention.
        component: The files under `refinfer` that a right answer to "where is it?" may name.
        needs: The features that it needs, beyond the simplest run; two or more are needed at once.
        seen_by: The ways of looking that should see it.
    """

    models: tuple[str, ...] | None
    component: tuple[str, ...]
    needs: tuple[Need, ...]
    seen_by: tuple[Sight, ...]

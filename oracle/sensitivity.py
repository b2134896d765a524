"""A guard: is a model one on which faults would show at all?

On a model with the usual tiny initialisation, greedy tokens follow from the last token alone, so a test
that compares them passes with almost any fault in it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from torch import Tensor

from oracle.checkpoint_spec import CheckpointSpec
from oracle.errors import InsensitiveModelError

MAX_INPUT_SHARE = 0.05
MIN_CONTEXT_SHARE = 0.9
MIN_EARLY_SHARE = 0.2

LogitsOf = Callable[[list[int]], np.ndarray | Tensor]
"""Gives the logits of every position of one prompt, [tokens, vocab]."""

_NUM_LAST_TOKENS = 32
_NUM_CONTEXTS = 4
_PROMPT_LENGTH = 24


@dataclass(frozen=True)
class Sensitivity:
    """How a model's most probable tokens depend on its input, as shares from 0 to 1.

    Attributes:
        input_share: Positions whose most probable next token is the token that stands there.
        context_share: Pairs of prompts that share the last token and nothing else, and continue differently.
        early_share: Positions in the second half of a prompt that continue differently when one token of
            the first quarter is another.
    """

    input_share: float
    context_share: float
    early_share: float

    @property
    def is_sensitive(self) -> bool:
        """Whether all three shares are within their limits."""
        return (
            self.input_share <= MAX_INPUT_SHARE
            and self.context_share >= MIN_CONTEXT_SHARE
            and self.early_share >= MIN_EARLY_SHARE
        )


def measure_sensitivity(logits: LogitsOf, vocab_size: int, *, seed: int = 0) -> Sensitivity:
    """Measures a model with random prompts.

    Args:
        logits: The model.
        vocab_size: Token ids are drawn from 0 up to this.
        seed: Decides the prompts.
    """
    draws = np.random.Generator(np.random.Philox(key=seed))
    repeats_input, differs_by_context, differs_early = [], [], []
    for _ in range(_NUM_LAST_TOKENS):
        last, *others = draws.permutation(vocab_size)
        # Contexts have no token in common, unless the vocabulary is too small for that.
        contexts = np.resize(others, (_NUM_CONTEXTS, _PROMPT_LENGTH - 1))
        prompts = np.insert(contexts, _PROMPT_LENGTH - 1, last, axis=1)
        best = np.array([_best_tokens(logits, prompt) for prompt in prompts])
        repeats_input.append(best == prompts)
        differs_by_context += [one != other for one, other in combinations(best[:, -1], 2)]
        changed = prompts[0].copy()
        position, step = draws.integers(_PROMPT_LENGTH // 4), draws.integers(1, vocab_size)
        changed[position] = (changed[position] + step) % vocab_size
        differs = best[0] != np.array(_best_tokens(logits, changed))
        differs_early.append(differs[_PROMPT_LENGTH // 2 :])
    return Sensitivity(
        input_share=float(np.mean(repeats_input)),
        context_share=float(np.mean(differs_by_context)),
        early_share=float(np.mean(differs_early)),
    )


def require_sensitive(logits: LogitsOf, vocab_size: int, *, seed: int = 0) -> Sensitivity:
    """Measures a model and refuses an insensitive one; see `measure_sensitivity`.

    Raises:
        InsensitiveModelError: A share lies beyond its limit, so faults would pass unseen.
    """
    found = measure_sensitivity(logits, vocab_size, seed=seed)
    if not found.is_sensitive:
        message = (
            f"faults would not show on this model: it repeats its input at {found.input_share:.1%} of positions "
            f"(at most {MAX_INPUT_SHARE:.0%}), another context changes {found.context_share:.1%} of tokens "
            f"(at least {MIN_CONTEXT_SHARE:.0%}), another early token {found.early_share:.1%} "
            f"(at least {MIN_EARLY_SHARE:.0%}); use a generated checkpoint with sensitive=True"
        )
        raise InsensitiveModelError(message, sensitivity=found)
    return found


def insensitive_spec() -> CheckpointSpec:
    """Gives a tied model with the usual initialisation; it exists to show that the guard trips."""
    return replace(CheckpointSpec(), tie_word_embeddings=True, sensitive=False)


def _best_tokens(logits: LogitsOf, prompt: np.ndarray) -> list[int]:
    best: list[int] = logits(prompt.tolist()).argmax(-1).tolist()
    return best

"""An open model of mlx-lm: its weights, its draft, and what stays of prompts between requests."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import (
    LRUPromptCache,
    can_trim_prompt_cache,
    load_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
)
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from mlx_lm.utils import load_model

from oracle.engines.adapter import Refused
from oracle.engines.adapters.mlx_lm_config import published_names
from oracle.engines.adapters.mlx_lm_families import CONFIGS
from oracle.engines.adapters.mlx_lm_settings import eos_token_ids_of, processor_arguments, sampler_arguments

NOISE = 0.03
"""Standard deviation of what a noisy draft's weights differ by, as a share of their own."""

_KEY = "model"
_REFUSALS = (ValueError, TypeError, KeyError, AttributeError, IndexError, FileNotFoundError, NotImplementedError)
"""What mlx-lm raises at a folder that it does not take."""


@dataclass
class OpenModel:
    """A model in one setting.

    Attributes:
        model: mlx-lm's.
        knobs: One value for each knob.
        eos_token_ids: What ends a request.
        draft: Guesses for it; None where nothing does.
        kept: Prompts of earlier requests; None where none are kept.
    """

    model: Any
    knobs: Mapping[str, Any]
    eos_token_ids: tuple[int, ...] = ()
    draft: Any = None
    kept: Any = None
    _folder: Any = field(default=None, repr=False)

    @classmethod
    def open(cls, folder: str, knobs: Mapping[str, Any]) -> "OpenModel":
        """Loads a folder without a tokenizer.

        Raises:
            Refused: mlx-lm does not take the folder, or does not run its model in the way that was asked for.
        """
        try:
            names = published_names(Path(folder)) if knobs["config"] == CONFIGS[0] else {}
            model, config = load_model(Path(folder), model_config=names)
            copy = load_model(Path(folder), model_config=names)[0] if knobs["way"] == "speculative" else None
        except _REFUSALS as error:
            message = f"{type(error).__name__}: {error}"
            raise Refused(message) from error
        draft = None if copy is None else noisy_copy(model, copy, knobs)
        opened = cls(model, knobs, eos_token_ids_of(config), draft)
        opened.check_way()
        opened.forget()
        return opened

    def check_way(self) -> None:
        """Asks what mlx-lm and its server ask before they run a model in a way.

        Raises:
            Refused: It is not run in this way.
        """
        caches = make_prompt_cache(self.model)
        if self.knobs["way"] == "batch" and not all(hasattr(cache, "merge") for cache in caches):
            message = "a prompt cache of the model cannot be merged, so that its server does not batch it"
            raise Refused(message)
        if self.draft is not None and not can_trim_prompt_cache(caches):
            message = "Speculative decoding requires a trimmable prompt cache"
            raise Refused(message)

    def forget(self) -> None:
        """Forgets every prompt that was kept."""
        if self.knobs["prompt_cache"] != "none":
            self.kept = LRUPromptCache()
        if self.knobs["prompt_cache"] == "saved":
            self._folder = tempfile.TemporaryDirectory(prefix="oracle-prompt-cache-")

    def fetch(self, prompt: Sequence[int]) -> tuple[Any, int]:
        """Gives the cache that a prompt goes on from, None for an empty one, and how many of its tokens are in it."""
        if self.kept is None:
            return None, 0
        cache, rest = self.kept.fetch_nearest_cache(_KEY, list(prompt))
        return cache, len(prompt) - len(rest)

    def keep(self, token_ids: Sequence[int], cache: Any) -> None:
        """Keeps the cache of a request for later ones, as mlx-lm's server does."""
        if self.kept is None or not token_ids:
            return
        if self._folder is not None:
            path = str(Path(self._folder.name) / "prompt.safetensors")
            save_prompt_cache(path, cache)
            cache = load_prompt_cache(path)
            mx.eval([own.state for own in cache])  # before the file is written again
        self.kept.insert_cache(_KEY, list(token_ids), cache)

    def new_cache(self) -> Any:
        """Gives an empty cache; with a draft, its own stands behind."""
        cache = make_prompt_cache(self.model, max_kv_size=self.knobs["max_kv_size"])
        return cache if self.draft is None else cache + make_prompt_cache(self.draft)

    def close(self) -> None:
        """Lets go of files."""
        if self._folder is not None:
            self._folder.cleanup()


def noisy_copy(model: Any, copy: Any, knobs: Mapping[str, Any]) -> Any:
    """Gives `copy` the weights of `model`, with noise on them where the knob "draft" asks for it."""
    share = NOISE if knobs["draft"] == "noisy" else 0.0
    parameters = []
    for number, (name, value) in enumerate(tree_flatten(model.parameters())):
        noise = mx.random.normal(value.shape, key=mx.random.key(number))
        parameters.append((name, value + share * mx.std(value) * noise))
    copy.update(tree_unflatten(parameters))
    mx.eval(copy.parameters())
    return copy


def sampler_of(parameters: Mapping[str, Any]) -> Any:
    """Makes what chooses a request's tokens.

    Raises:
        ValueError: mlx-lm does not take a value.
    """
    return make_sampler(**sampler_arguments(parameters))


def processors_of(parameters: Mapping[str, Any]) -> Any:
    """Makes what changes a request's logits.

    Raises:
        ValueError: mlx-lm does not take a value.
    """
    return make_logits_processors(**processor_arguments(parameters))

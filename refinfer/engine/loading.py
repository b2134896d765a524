"""A checkpoint as an engine needs it: model, tokenizer, and the ids that end a request."""

from dataclasses import dataclass
from pathlib import Path

from refinfer.config import load_eos_token_ids
from refinfer.hub import resolve_model
from refinfer.model import Llama, load_model
from refinfer.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A checkpoint in memory; several engines may run it, each with caches of its own.

    Attributes:
        name: What it was loaded from; part of the keys of a prefix cache.
        model: The model.
        tokenizer: The checkpoint's tokenizer, or None where it has none; then prompts are token ids only.
        eos_token_ids: Ids that end a request: those of `load_eos_token_ids`, and the tokenizer's `eos_token` beside
            them, as in vLLM. Chat checkpoints have been published whose generation_config.json names another.
    """

    name: str
    model: Llama
    tokenizer: Tokenizer | None
    eos_token_ids: tuple[int, ...]

    @classmethod
    def load(cls, model: str | Path, *, dtype: str = "float32", batch_invariant: bool = True) -> "LoadedModel":
        """Loads a checkpoint.

        Args:
            model: A checkpoint folder, the name of a fetched model, or a hub id.
            dtype: Dtype of weights and activations.
            batch_invariant: Whether a row's bits must not depend on what runs beside it.

        Raises:
            CheckpointError: The folder cannot be loaded as it stands.
        """
        folder = resolve_model(model)
        own = load_model(folder, dtype=dtype, batch_invariant=batch_invariant)
        tokenizer = Tokenizer.from_folder(folder) if Tokenizer.exists(folder) else None
        eos_token_ids = load_eos_token_ids(folder)
        last = None if tokenizer is None else tokenizer.eos_token_id
        if last is not None and last not in eos_token_ids and last < own.config.vocab_size:
            eos_token_ids += (last,)
        return cls(f"{folder} {dtype} {batch_invariant}", own, tokenizer, eos_token_ids)

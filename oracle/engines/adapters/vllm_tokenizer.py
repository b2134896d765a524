"""A tokenizer of one character a token, so that what vLLM takes as text stands for token ids, one way and no other."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FIRST_SYMBOL = 0x10000
"""Beyond all characters that grammars give a meaning, and with room for a million tokens."""


def symbol_of(token_id: int) -> str:
    """Gives the character that stands for a token."""
    return chr(_FIRST_SYMBOL + token_id)


def text_of(token_ids: Sequence[int]) -> str:
    """Gives the text that stands for a sequence of tokens."""
    return "".join(map(symbol_of, token_ids))


def read_checkpoint(folder: Path) -> tuple[int, tuple[int, ...]]:
    """Reads the size of the vocabulary, and what ends a request, from a checkpoint's own files."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    eos = config.get("eos_token_id")
    generation = folder / "generation_config.json"
    if generation.is_file():
        eos = json.loads(generation.read_text(encoding="utf-8")).get("eos_token_id", eos)
    eos_token_ids = tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)
    return int(config["vocab_size"]), eos_token_ids


def write_symbol_tokenizer(folder: Path, vocab_size: int, eos_token_ids: Sequence[int]) -> Path:
    """Writes tokenizer.json and tokenizer_config.json.

    Args:
        folder: An existing folder.
        vocab_size: Number of token ids.
        eos_token_ids: Special tokens; the first is the one that the tokenizer names as its end.

    Returns:
        The folder.
    """
    special = [{"id": token_id, "content": symbol_of(token_id), **_SPECIAL} for token_id in eos_token_ids]
    vocabulary = {symbol_of(token_id): token_id for token_id in range(vocab_size)}
    tokenizer = {**_TOKENIZER, "added_tokens": special, "model": {**_MODEL, "vocab": vocabulary}}
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if eos_token_ids:
        settings["eos_token"] = symbol_of(eos_token_ids[0])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


_SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}

_MODEL: dict[str, Any] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
    "merges": [],
}

_TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
}

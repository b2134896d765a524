"""A checkpoint's tokenizer, with the ids and the text that Hugging Face gives."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from refinfer.errors import CheckpointError, ConfigError, RequestError
from refinfer.tokenizer.decoder_rules import DecoderRules

_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""One of these holds the vocabulary."""

_PANIC = "PanicException"
"""What the `tokenizers` library ends in where it expected something else of a file; a class that has no import."""


class Tokenizer:
    """Text to token ids and back.

    All of it is done by the `transformers` library, so that ids and text are Hugging Face's by construction.
    Only local files are read, and no code from a checkpoint is run.

    Args:
        hugging_face_tokenizer: The tokenizer that does the work.
    """

    def __init__(self, hugging_face_tokenizer: PreTrainedTokenizerBase) -> None:
        self._hugging_face_tokenizer = hugging_face_tokenizer

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether a checkpoint folder has a tokenizer."""
        return any((folder / name).is_file() for name in _FILES)

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Reads the tokenizer of a checkpoint folder.

        Raises:
            CheckpointError: There is none, or it cannot be read.
        """
        if not cls.exists(folder):
            message = f"{folder} has no tokenizer ({', '.join(_FILES)}); copy tokenizer.json there, or use token ids"
            raise CheckpointError(message, folder=folder)
        return cls(_load(folder, folder))

    @classmethod
    def from_gguf(cls, path: Path) -> "Tokenizer":
        """Reads the tokenizer that a GGUF file carries.

        Raises:
            CheckpointError: There is none, or it is of a kind that cannot be read.
        """
        return cls(_load(path, path.parent, gguf_file=path.name))

    def save(self, folder: Path) -> None:
        """Writes the tokenizer's files, chat template included, into a folder."""
        self._hugging_face_tokenizer.save_pretrained(folder)

    @property
    def vocab_size(self) -> int:
        """Number of token ids, added ones included; a model may have a few more rows."""
        return len(self._hugging_face_tokenizer)

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text, or None where the tokenizer names none."""
        return cast("int | None", self._hugging_face_tokenizer.eos_token_id)

    def encode(self, text: str) -> list[int]:
        """Gives the ids of a text, with the special tokens that the checkpoint adds.

        The names of special tokens in the text become those tokens, as Hugging Face does it; so does
        doubling a beginning-of-sequence token for a text that brings its own.

        Raises:
            RequestError: The text has half of a surrogate pair, which is no character.
        """
        _refuse_half_characters(text)
        return list(self._hugging_face_tokenizer(text, verbose=False)["input_ids"])

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Gives the ids of a conversation, ready for the answer, through the checkpoint's chat template.

        The template writes the special tokens, so none are added to what it gives.

        Raises:
            ConfigError: The checkpoint has no chat template.
            RequestError: There is no message, one lacks "role" or "content", or the template refuses them.
        """
        template = self._hugging_face_tokenizer.chat_template
        if not template or (isinstance(template, dict) and "default" not in template):
            message = "this checkpoint has no chat template; write the prompt as text, or use an instruct checkpoint"
            raise ConfigError(message)
        texts = [message.get(key) for message in messages for key in ("role", "content")]
        if not texts or not all(isinstance(text, str) for text in texts):
            message = (
                f"messages are {list(messages)!r}; give at least one, each with a text for 'role' and for 'content'"
            )
            raise RequestError(message, messages=messages)
        _refuse_half_characters(*cast("list[str]", texts))
        try:
            token_ids = self._hugging_face_tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
        except Exception as error:  # a template is the checkpoint's own program, and may fail in any way
            message = f"the chat template refuses these messages: {error}"
            raise RequestError(message, messages=messages) from error
        return cast("list[int]", token_ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Gives the text of some ids, without special tokens; ids outside the vocabulary have no text."""
        return self._decode(token_ids, clean_up=self.cleans_up)

    def decode_uncleaned(self, token_ids: Sequence[int]) -> str:
        """Gives the text of some ids as it is before `clean_up`."""
        return self._decode(token_ids, clean_up=False)

    def _decode(self, token_ids: Sequence[int], *, clean_up: bool) -> str:
        text = self._hugging_face_tokenizer.decode(
            list(token_ids),
            skip_special_tokens=True,
            clean_up_tokenization_spaces=clean_up,
        )
        return cast("str", text)

    @cached_property
    def cleans_up(self) -> bool:
        """Whether decoding takes away blanks before punctuation.

        A checkpoint may ask for it, but transformers heeds that for BPE only on insistence,
        because BPE keeps the blanks that were in the text.
        """
        tokenizer = self._hugging_face_tokenizer
        if not tokenizer.clean_up_tokenization_spaces or not isinstance(tokenizer, PreTrainedTokenizerFast):
            return bool(tokenizer.clean_up_tokenization_spaces)
        is_bpe = type(tokenizer.backend_tokenizer.model).__name__ == "BPE"
        return not is_bpe or tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output

    def clean_up(self, text: str) -> str:
        """Takes away blanks before punctuation and in English contractions, as decoding does if `cleans_up`."""
        return self._hugging_face_tokenizer.clean_up_tokenization(text)

    @cached_property
    def decoder_rules(self) -> DecoderRules:
        """What this tokenizer promises about text it has already given."""
        tokenizer = self._hugging_face_tokenizer
        names = ("decode", "_decode", "clean_up_tokenization")
        if not isinstance(tokenizer, PreTrainedTokenizerFast) or any(
            getattr(type(tokenizer), name) is not getattr(PreTrainedTokenizerFast, name) for name in names
        ):
            return DecoderRules(is_streamable=False, has_byte_tokens=False)
        decoder = tokenizer.backend_tokenizer.decoder
        return DecoderRules.from_state(None if decoder is None else json.loads(decoder.__getstate__()))

    @cached_property
    def _special_tokens(self) -> frozenset[str]:
        added = self._hugging_face_tokenizer.added_tokens_decoder.values()
        return frozenset(token.content for token in added if token.special)

    def visible_token(self, token_id: int) -> str | None:
        """Gives the token as the vocabulary writes it, or None if decoding drops it: special or unknown."""
        token = cast("PreTrainedTokenizerFast", self._hugging_face_tokenizer).backend_tokenizer.id_to_token(token_id)
        return None if token is None or token in self._special_tokens else token


def _load(source: Path, folder: Path, **options: str) -> PreTrainedTokenizerBase:
    try:
        tokenizer = cast(
            "PreTrainedTokenizerBase",
            AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options),
        )
        # Some of what a file lacks shows only when a text is encoded or decoded.
        tokenizer.decode(tokenizer("a text", verbose=False)["input_ids"], skip_special_tokens=True)
    except BaseException as error:  # the `tokenizers` library raises nothing narrower, and panics are no exceptions
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        is_sentence_piece = (source / "tokenizer.model").is_file() and not (source / "tokenizer.json").is_file()
        way_out = "put tokenizer.json there, or install sentencepiece" if is_sentence_piece else "download it again"
        message = f"the tokenizer of {source} cannot be read: {reason}; {way_out}"
        raise CheckpointError(message, path=source) from error
    return tokenizer


def _refuse_half_characters(*texts: str) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = f"the text has half of a surrogate pair at position {error.start}; give whole characters"
            raise RequestError(message, position=error.start) from error

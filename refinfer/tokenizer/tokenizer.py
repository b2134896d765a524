"""A checkpoint's tokenizer, with the ids and the text that its tokenizer.json says."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from refinfer.errors import CheckpointError, ConfigError, RequestError
from refinfer.tokenizer.decoder_rules import DecoderRules
from refinfer.tokenizer.held_to_file import hold_to_file

_FULL_FILE = "tokenizer.json"
_FILES = (_FULL_FILE, "tokenizer.model", "vocab.json")
"""One of these holds the vocabulary."""

_PANIC = "PanicException"
"""What the `tokenizers` library ends in where a file has something that it did not expect; no class to import."""


class Tokenizer:
    """Text to token ids and back.

    Where a checkpoint has tokenizer.json, ids and text are what that file says, run by the `tokenizers` library:
    the class that tokenizer_config.json names counts for nothing, and config.json is not read. From
    tokenizer_config.json come the chat template and the special tokens. `add_bos_token` and `add_eos_token`
    there count for nothing either: what surrounds a prompt is the post-processor's, as in transformers.
    Other vocabularies are converted by transformers.
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
        """Read the tokenizer of a checkpoint folder.

        Raises:
            CheckpointError: There is none, or it cannot be read.
        """
        if not cls.exists(folder):
            message = f"{folder} has no tokenizer ({', '.join(_FILES)}); copy tokenizer.json there, or use token ids"
            raise CheckpointError(message, folder=folder)
        if not (folder / _FULL_FILE).is_file():
            return cls(_load(AutoTokenizer, folder, folder))
        tokenizer = cast("PreTrainedTokenizerFast", _load(PreTrainedTokenizerFast, folder, folder))
        hold_to_file(tokenizer, folder / _FULL_FILE)
        return cls(tokenizer)

    @classmethod
    def from_gguf(cls, path: Path) -> "Tokenizer":
        """Read the tokenizer that a GGUF file carries.

        Raises:
            CheckpointError: There is none, or it is of a kind that cannot be read.
        """
        return cls(_load(AutoTokenizer, path, path.parent, gguf_file=path.name))

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files, chat template included, into a folder."""
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
        """Return the ids of a text, with the special tokens that the checkpoint adds.

        The names of special tokens in the text become those tokens, as Hugging Face does it; so does
        doubling a beginning-of-sequence token for a text that brings its own.

        Raises:
            RequestError: The text has half of a surrogate pair, which is no character.
        """
        _refuse_half_characters(text)
        return list(self._hugging_face_tokenizer(text, verbose=False)["input_ids"])

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the ids of a conversation, ready for the answer, through the checkpoint's chat template.

        The template writes the special tokens, so none are added to what it gives.

        Raises:
            ConfigError: The checkpoint has no chat template.
            RequestError: There is no message, one lacks "role" or "content", or the template fails on them.
        """
        template = self._hugging_face_tokenizer.chat_template
        if not template or (isinstance(template, dict) and "default" not in template):
            message = "this checkpoint has no chat template; write the prompt as text, or use an instruct checkpoint"
            raise ConfigError(message)
        listed = list(messages) if isinstance(messages, Iterable) else []
        whole = [dict(message) for message in listed if isinstance(message, Mapping)]
        texts = [message.get(key) for message in whole for key in ("role", "content")]
        if not texts or len(whole) != len(listed) or not all(isinstance(text, str) for text in texts):
            message = (
                f"messages are {messages!r}; give a list of at least one, each with a text for 'role' and for 'content'"
            )
            raise RequestError(message, messages=messages)
        _refuse_half_characters(*cast("list[str]", texts))
        try:
            token_ids = self._hugging_face_tokenizer.apply_chat_template(
                whole,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
        except Exception as error:  # a template is the checkpoint's own program, and may fail in any way
            message = f"the chat template refuses these messages: {error}"
            raise RequestError(message, messages=messages) from error
        return cast("list[int]", token_ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of some ids, without special tokens; ids outside the vocabulary have no text."""
        return self._decode(token_ids, clean_up=self.cleans_up)

    def decode_uncleaned(self, token_ids: Sequence[int]) -> str:
        """Return the text of some ids as it is before `clean_up`."""
        return self._decode(token_ids, clean_up=False)

    def _decode(self, token_ids: Sequence[int], *, clean_up: bool) -> str:
        text = self._hugging_face_tokenizer.decode(
            list(token_ids),
            skip_special_tokens=True,
            clean_up_tokenization_spaces=clean_up,
        )
        return cast("str", text)

    def decode_token(self, token_id: int) -> str:
        """Return one token as it reads behind others, so with its blank; a special token by its name."""
        if self.visible_token(token_id) is None:
            return self._backend.id_to_token(token_id) or ""
        neighbour, its_text = self._neighbour
        text = self.decode_uncleaned([*neighbour, token_id])
        return text[len(its_text) :] if text.startswith(its_text) else self.decode_uncleaned([token_id])

    @cached_property
    def _neighbour(self) -> tuple[list[int], str]:
        """A token to decode another behind, and its text: a plain word, which nothing behind it can change."""
        for token_id in range(self.vocab_size):
            text = self.decode_uncleaned([token_id])
            token = self.visible_token(token_id)
            if token is not None and not token.startswith("<0x") and text.isascii() and text.isalnum():
                return [token_id], text
        return [], ""

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
        """Take away blanks before punctuation and in English contractions, as decoding does if `cleans_up`."""
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

    @property
    def _backend(self) -> Backend:
        return cast("PreTrainedTokenizerFast", self._hugging_face_tokenizer).backend_tokenizer

    @cached_property
    def _special_tokens(self) -> frozenset[str]:
        added = self._hugging_face_tokenizer.added_tokens_decoder.values()
        return frozenset(token.content for token in added if token.special)

    def visible_token(self, token_id: int) -> str | None:
        """Return the token as the vocabulary writes it, or None if decoding drops it: special or unknown."""
        token = self._backend.id_to_token(token_id)
        return None if token is None or token in self._special_tokens else token


def _load(kind: type[Any], source: Path, folder: Path, **options: str) -> PreTrainedTokenizerBase:
    try:
        tokenizer = cast(
            "PreTrainedTokenizerBase",
            kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options),
        )
        # Some of what a file lacks shows only when a text is encoded or decoded.
        tokenizer.decode(tokenizer("a text", verbose=False)["input_ids"], skip_special_tokens=True)
    except BaseException as error:  # the `tokenizers` library raises nothing narrower, and panics are no exceptions
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        is_sentence_piece = (source / "tokenizer.model").is_file() and not (source / _FULL_FILE).is_file()
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

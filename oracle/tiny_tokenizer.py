"""A byte-level tokenizer made of nothing but a table: no training, no download, the usual traps on purpose."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from oracle.errors import ScenarioError

SPECIAL_TOKENS = ("<s>", "</s>", "<pad>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
"""Special tokens; their ids are their places here."""

BOS_TOKEN_ID = 0
EOS_TOKEN_ID = 1
PAD_TOKEN_ID = 2
END_OF_TURN_TOKEN_ID = 6

# Pieces of one word each, every one made of two earlier ones, in order of priority.
# Written as text where it is text; the last group as bytes, since its pieces are no whole characters.
_MERGES: tuple[tuple[bytes, bytes], ...] = (
    *((left.encode(), right.encode()) for left, right in (("h", "e"), ("t", "he"), (" ", "the"), ("i", "n"))),
    *((left.encode(), right.encode()) for left, right in (("in", "g"), ("l", "l"), ("e", "r"), ("o", "n"))),
    *((left.encode(), right.encode()) for left, right in ((" ", "a"), (" ", " "), ("1", "2"), ("0", "0"))),
    *((left.encode(), right.encode()) for left, right in ((" ", "w"), (" w", "o"), ("r", "l"), ("a", "n"))),
    # The end of "é" with the letter that follows: a token that ends one character and begins another.
    (b"\xa9", b"t"),
    # "é" itself.
    (b"\xc3", b"\xa9"),
    # First halves: of many emoji, and of "日" and others that begin with these two bytes.
    (b"\xf0", b"\x9f"),
    (b"\xe6", b"\x97"),
    # A second half, so that an emoji can be two tokens of two bytes.
    (b"\x98", b"\x80"),
    # The end of one such character with the beginning of the next: "日本" splits inside both.
    (b"\xa5", b"\xe6"),
    # All of "本", which it becomes where nothing took its first byte away.
    (b"\xe6", b"\x9c"),
    (b"\xe6\x9c", b"\xac"),
)

TOKENIZER_SIZE = len(SPECIAL_TOKENS) + 256 + len(_MERGES)
"""Number of ids; a checkpoint may have a larger vocabulary, whose further ids stand for no text."""

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Begins with BOS, and so does everything that the tokenizer encodes: who does both, doubles it."""


def write_tokenizer(folder: Path, vocab_size: int) -> Path:
    """Writes tokenizer.json and tokenizer_config.json.

    Args:
        folder: An existing folder; the files go beside whatever it holds.
        vocab_size: Number of token ids of the model that the tokenizer is for.

    Returns:
        The folder.

    Raises:
        ScenarioError: The model has fewer ids than the tokenizer.
    """
    if vocab_size < TOKENIZER_SIZE:
        message = f"a vocabulary of {vocab_size} ids is too small; the tiny tokenizer has {TOKENIZER_SIZE}"
        raise ScenarioError(message, vocab_size=vocab_size)
    _build().save(str(folder / "tokenizer.json"))
    bos, eos, pad = (SPECIAL_TOKENS[token_id] for token_id in (BOS_TOKEN_ID, EOS_TOKEN_ID, PAD_TOKEN_ID))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "additional_special_tokens": list(SPECIAL_TOKENS[3:]),
        "chat_template": CHAT_TEMPLATE,
        # Spaces before punctuation stay as they are, so that decoding gives back what was encoded.
        "clean_up_tokenization_spaces": False,
    }
    text = json.dumps(settings, indent=1)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    return folder


def _build() -> Tokenizer:
    symbol_by_byte = _symbol_by_byte()

    def written(piece: bytes) -> str:
        return "".join(symbol_by_byte[byte] for byte in piece)

    pieces = [bytes([byte]) for byte in range(256)] + [left + right for left, right in _MERGES]
    tokens = [*SPECIAL_TOKENS, *map(written, pieces)]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: token_id for token_id, token in enumerate(tokens)},
            merges=[(written(left), written(right)) for left, right in _MERGES],
        )
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    bos = SPECIAL_TOKENS[BOS_TOKEN_ID]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A",
        pair=f"{bos} $A {bos} $B",
        special_tokens=[(bos, BOS_TOKEN_ID)],
    )
    return tokenizer


def _symbol_by_byte() -> dict[int, str]:
    """Gives the printable character that stands for each byte in byte-level vocabularies.

    Printable Latin-1 bytes stand for themselves, the others are numbered from 256 on, in order:
    the table that GPT-2 introduced and the tokenizers library uses.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}

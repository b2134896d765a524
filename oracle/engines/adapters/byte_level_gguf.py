"""A tokenizer for engines that want one and are never asked for text: each byte is a token, in a GGUF file of its own."""

from pathlib import Path

import gguf

_SHOWN_AS_THEMSELVES = (*range(33, 127), *range(161, 173), *range(174, 256))
"""Bytes that byte-level vocabularies write as the character of the same number, as GPT-2 began it."""


def write_byte_level_gguf(target: Path) -> None:
    """Writes a file that holds a vocabulary and no weights."""
    writer = gguf.GGUFWriter(target, "llama")
    others = [byte for byte in range(256) if byte not in _SHOWN_AS_THEMSELVES]
    characters = [chr(byte) for byte in _SHOWN_AS_THEMSELVES] + [chr(256 + place) for place in range(len(others))]
    tokens = ["<s>", "</s>", *characters, "th"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(tokens) - 2))
    writer.add_token_merges(["t h"])  # a list of none is refused
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(1)
    writer.add_chat_template("none")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

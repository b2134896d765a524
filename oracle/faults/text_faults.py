"""Faults of text: what is added to prompts, and how tokens become text again."""

from collections.abc import Mapping, Sequence

from oracle.faults.registry import Area, one_replacement
from refinfer.tokenizer import IncrementalDetokenizer, Tokenizer

_encode_chat = Tokenizer.encode_chat


@one_replacement(
    "bos_doubled_in_chat",
    Area.TEXT,
    "the chat template writes the first special token, and the tokenizer adds it again",
    Tokenizer,
    "encode_chat",
    models=("AtomaAI/atoma-infer#243 (14.21)", "InfiniTensor/InfiniLM#388 (14.21)"),
    component=("tokenizer/tokenizer.py",),
    needs=("chat",),
    seen_by=("text",),
)
def bos_doubled_in_chat(self: Tokenizer, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Adds what is there."""
    return [*self.encode(""), *_encode_chat(self, messages)]


@one_replacement(
    "special_names_not_recognised",
    Area.TEXT,
    "the name of a special token in a text is split like any other text",
    Tokenizer,
    "encode",
    models=None,
    component=("tokenizer/tokenizer.py",),
    needs=("special tokens",),
    seen_by=("text",),
)
def special_names_not_recognised(self: Tokenizer, text: str) -> list[int]:
    """Cuts the text up at each angle bracket."""
    first, *rest = text.split("<")
    ids = [self._hugging_face_tokenizer(part, add_special_tokens=False)["input_ids"] for part in ("<", *rest)]
    begin = self._hugging_face_tokenizer(first)["input_ids"]
    return [*begin, *(token_id for part in ids[1:] for token_id in (*ids[0], *part))]


@one_replacement(
    "tokens_decoded_one_by_one",
    Area.TEXT,
    "each token is decoded by itself, so characters of several tokens break",
    IncrementalDetokenizer,
    "push",
    models=("waybarrios/vllm-mlx#109 (12.03)",),
    component=("tokenizer/detokenizer.py",),
    needs=("bytes of a character",),
    seen_by=("text",),
)
def tokens_decoded_one_by_one(self: IncrementalDetokenizer, token_id: int) -> str:
    """Decodes without waiting for the rest of a character."""
    return self._tokenizer.decode([token_id])


FAULTS = (bos_doubled_in_chat, special_names_not_recognised, tokens_decoded_one_by_one)

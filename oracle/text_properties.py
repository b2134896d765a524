"""Is text turned into tokens and back as the reference does it?"""

from collections.abc import Sequence
from pathlib import Path

from oracle.case import Case
from oracle.errors import TextMismatch
from oracle.observation import Observation
from oracle.reference import ReferenceTokenizer
from refinfer.tokenizer import IncrementalDetokenizer, Tokenizer


def check_prompt_ids(folder: Path, texts: Sequence[str]) -> None:
    """Holds prompt ids to the reference's: plain, begun with BOS already, and through the chat template.

    Raises:
        TextMismatch: Some ids differ.
    """
    tokenizer, reference = Tokenizer.from_folder(folder), ReferenceTokenizer.open(folder)
    for text in texts:
        conversation = [{"role": "user", "content": text}]
        pairs = {
            "encode": (tokenizer.encode(text), reference.encode(text)),
            "encode_chat": (tokenizer.encode_chat(conversation), reference.encode_chat(conversation)),
        }
        for name, (own, theirs) in pairs.items():
            if list(own) != list(theirs):
                message = f"{name}({text!r}) gives {own}; the reference gives {theirs}"
                raise TextMismatch(message, text=text, own=own, expected=theirs)


def check_detokenising(folder: Path, token_id_lists: Sequence[Sequence[int]]) -> None:
    """Holds text that is put together token by token to the reference's decoding of the whole.

    Raises:
        TextMismatch: The texts differ.
    """
    tokenizer, reference = Tokenizer.from_folder(folder), ReferenceTokenizer.open(folder)
    for token_ids in token_id_lists:
        detokenizer = IncrementalDetokenizer(tokenizer)
        parts = [detokenizer.push(token_id) for token_id in token_ids]
        own = "".join([*parts, detokenizer.finish()])
        whole = reference.decode(list(token_ids))
        if own != whole:
            message = f"tokens {list(token_ids)} put together give {own!r}; decoded whole they give {whole!r}"
            raise TextMismatch(message, token_ids=token_ids, own=own, expected=whole)


def check_text(case: Case, mode: str) -> Observation:  # noqa: ARG001 - text has no mode
    """Holds prompt ids and decoded text to the reference's."""
    if not Tokenizer.exists(case.folder):
        return Observation(witnessed=False)
    check_prompt_ids(case.folder, case.scenario.texts)
    encode = ReferenceTokenizer.open(case.folder).encode
    prompts = [request.prompt_token_ids for request in case.scenario.requests]
    # Ids drawn at random seldom put a character of several bytes together; those of texts do.
    check_detokenising(case.folder, [*prompts, *(encode(text) for text in case.scenario.texts)])
    return Observation(witnessed=bool(case.scenario.texts))

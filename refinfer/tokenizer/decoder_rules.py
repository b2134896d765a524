"""What a tokenizer's decoder promises about text it has already given."""

from dataclasses import dataclass
from typing import Any

REPLACEMENT_CHARACTER = "\ufffd"
"""What an invalid or unfinished sequence of UTF-8 bytes decodes to."""

_MAX_STRIPPED = 4
"""Most leading characters a decoder may strip and still be followed; the usual number is 1."""

_Stage = dict[str, Any]


@dataclass(frozen=True)
class DecoderRules:
    """How the text of a token depends on its neighbours.

    Attributes:
        is_streamable: Text stands as soon as it is decoded, but for the two exceptions below.
            Where this is false nothing is promised, and text is certain only at the end.
        has_byte_tokens: Tokens like `<0xE2>` stand for bytes, and a whole run of them is judged together:
            one invalid byte turns every byte of the run into a replacement character.

    The other exception needs no flag: a replacement character at the very end of the text may be the
    first bytes of a character that the next token completes.
    """

    is_streamable: bool
    has_byte_tokens: bool

    @classmethod
    def from_state(cls, state: _Stage | None) -> "DecoderRules":
        """Reads the rules from the serialised decoder of a tokenizer; None joins tokens with blanks."""
        stages = [] if state is None else _flatten(state)
        return cls(
            is_streamable=_are_streamable(stages),
            has_byte_tokens=any(stage["type"] == "ByteFallback" for stage in stages),
        )


def _flatten(state: _Stage) -> list[_Stage]:
    if state["type"] == "Sequence":
        return [stage for inner in state["decoders"] for stage in _flatten(inner)]
    return [state]


def _are_streamable(stages: list[_Stage]) -> bool:
    """Goes through the stages in order; a fusing stage makes one string of all tokens, and later ones see that."""
    is_fused = False
    for stage in stages:
        if not _is_streamable(stage, is_fused=is_fused, is_only=len(stages) == 1):
            return False
        is_fused = is_fused or stage["type"] in ("Fuse", "ByteLevel")
    return True


def _is_streamable(stage: _Stage, *, is_fused: bool, is_only: bool) -> bool:
    match stage["type"]:
        case "Fuse":
            return True
        case "ByteLevel" | "ByteFallback" | "Metaspace":
            return not is_fused
        case "WordPiece" | "BPEDecoder":
            return is_only
        case "Strip":
            # What is stripped from the end is not known before the end.
            return not is_fused or (stage["stop"] == 0 and stage["start"] <= _MAX_STRIPPED)
        case "Replace":
            pattern = stage["pattern"].get("String", "")
            # A longer pattern could begin in one token and end in the next.
            return len(pattern) == 1 and pattern != REPLACEMENT_CHARACTER
        case _:
            return False

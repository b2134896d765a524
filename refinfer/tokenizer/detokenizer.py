"""Token ids in one at a time, text out as soon as it can no longer change."""

from refinfer.tokenizer.decoder_rules import REPLACEMENT_CHARACTER
from refinfer.tokenizer.tokenizer import Tokenizer

_MAX_CONTEXT = 32
"""Tokens that are decoded again for each new one, at most, in common text."""

_KEPT_CONTEXT = 16
"""Tokens that stay when the context is cut."""

_ENOUGH_CHARS = 4
"""Characters at the end that the kept tokens must have in common with the whole context.

They come from four bytes or more, and three would do to know whether a UTF-8 sequence is open.
And they show that a decoder which strips leading blanks, or treats the first token otherwise, is past that.
"""

_BYTE_TOKEN_LENGTH = len("<0xE2>")

_OPENS_CLEAN_UP = " 'nvr"
"""Characters at which a cleaned-up pattern (" .", " n't", " 've", …) may go on; after any other, text is settled."""


class IncrementalDetokenizer:
    """Decodes the tokens of one request as they come.

    What all calls give, put together, equals `Tokenizer.decode` of all the ids, whatever they are.
    A token costs a decoding of a few tokens, not of the whole text.

    For each new token the last few are decoded together with it, and what this adds to their text is new.
    Held back is only what a later token can change: a replacement character at the end, which may be an
    unfinished UTF-8 sequence and is settled by the next token; a run of byte tokens (`<0xE2>`), until it ends;
    blanks that clean-up may take away.
    Where the decoder's rules promise nothing, everything is held back until `finish`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._rules = tokenizer.decoder_rules
        self._context: list[int] = []
        self._num_given_chars = 0
        self._max_context = _MAX_CONTEXT
        self._held: list[int] = []
        self._uncleaned = ""

    def push(self, token_id: int) -> str:
        """Takes the next token; gives the text that became certain, often its own, sometimes none."""
        if not self._rules.is_streamable:
            self._held.append(token_id)
            return ""
        token = self._tokenizer.visible_token(token_id)
        if token is None:
            return ""
        self._held.append(token_id)
        if self._rules.has_byte_tokens and _may_be_byte_token(token):
            return ""
        return self._cleaned(self._advanced())

    def finish(self) -> str:
        """Gives the rest of the text, after the last token."""
        if not self._rules.is_streamable:
            return self._tokenizer.decode(self._held)
        rest = self._tokenizer.decode_uncleaned(self._context + self._held)[self._num_given_chars :]
        if not self._tokenizer.cleans_up:
            return rest
        return self._tokenizer.clean_up(self._uncleaned + rest)

    def _advanced(self) -> str:
        """Moves the held tokens into the context and gives what they add."""
        self._context += self._held
        self._held = []
        text = self._tokenizer.decode_uncleaned(self._context)
        num_certain_chars = _num_certain_chars(text)
        fresh = text[self._num_given_chars : num_certain_chars]
        self._num_given_chars = num_certain_chars
        if len(self._context) >= self._max_context:
            self._cut_context(text)
        return fresh

    def _cut_context(self, text: str) -> None:
        """Keeps the last tokens only, if their text ends like the whole; else tries again at twice the length."""
        kept = self._context[-_KEPT_CONTEXT:]
        kept_text = self._tokenizer.decode_uncleaned(kept)
        if len(kept_text) < _ENOUGH_CHARS or not text.endswith(kept_text[-_ENOUGH_CHARS:]):
            self._max_context = 2 * len(self._context)
            return
        self._context = kept
        self._num_given_chars = _num_certain_chars(kept_text)
        self._max_context = _MAX_CONTEXT

    def _cleaned(self, fresh: str) -> str:
        if not self._tokenizer.cleans_up:
            return fresh
        self._uncleaned += fresh
        num_settled_chars = len(self._uncleaned.rstrip(_OPENS_CLEAN_UP))
        settled, self._uncleaned = self._uncleaned[:num_settled_chars], self._uncleaned[num_settled_chars:]
        return self._tokenizer.clean_up(settled)


def _num_certain_chars(text: str) -> int:
    """All but a replacement character at the end: an unfinished UTF-8 sequence shows as exactly one."""
    return len(text) - text.endswith(REPLACEMENT_CHARACTER)


def _may_be_byte_token(token: str) -> bool:
    return token.startswith("<0x") and token.endswith(">") and len(token.encode()) == _BYTE_TOKEN_LENGTH

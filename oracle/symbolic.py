"""A model that is a pure hash of the tokens so far: positions, slots, order and reuse show exactly, without numerics.

What a token keeps in the cache is a hash of everything that is kept of the tokens before it, read back through the
block table in order, and of itself and its position. So one wrong slot, one stale block or two tokens in the wrong
order change every value after them, and the logits that are made of it.
"""

from collections.abc import Sequence
from functools import cache, cached_property
from hashlib import blake2b

import numpy as np
from numpy.random import Philox

from refinfer.tokenizer import Tokenizer
from refinfer.tokenizer.decoder_rules import DecoderRules

VOCAB_SIZE = 16
EOS_TOKEN_IDS = frozenset({15})
HASH_BYTES = 8

_NUM_ROWS = 2**16
_LEVELS = 256
"""Logits are multiples of 1/32 between -4 and 4, so that now and then two of them are equal."""

# One token is no text, two are halves of one character, one is two characters: what makes text hard.
_PIECES = (b"a", b"b", b"c", b" d", b"\xc3", b"\xa9", b"ab", b" ", b"e", b"f", b"\xe6\x97", b"\xa5", b"g", b"h", b"i")


class PrefixHash:
    """What is kept of tokens that were read so far, in order; changes with every token.

    Args:
        values: What is kept of the tokens before, in order.
        salt: The request's cache salt, which is part of all that is kept: sharing between salts shows.
    """

    def __init__(self, values: Sequence[bytes] = (), salt: str | None = None) -> None:
        self._hash = blake2b(b"".join(values), digest_size=HASH_BYTES)
        self._salt = b"" if salt is None else b"salt " + salt.encode()

    def push(self, token_id: int, position: int) -> bytes:
        """Takes the next token; gives what is kept of it."""
        own = self._hash.copy()
        own.update((token_id << 32 | position).to_bytes(HASH_BYTES, "little") + self._salt)
        value = own.digest()
        self._hash.update(value)
        return value


def logits_of(values: Sequence[bytes]) -> np.ndarray:
    """Gives the logits that follow from what was kept of some tokens, (tokens, vocab) in float32."""
    table = _logits_by_row()
    if len(values) == 1:  # the usual case, and five times as fast
        row = values[0][0] | values[0][1] << 8
        return table[row : row + 1]
    rows: np.ndarray = table[[value[0] | value[1] << 8 for value in values]]
    return rows


@cache
def _logits_by_row() -> np.ndarray:
    """Raw bits of a counted generator, whose stream numpy keeps from release to release."""
    raw = Philox(key=np.array([0, 1], dtype=np.uint64)).random_raw(_NUM_ROWS * VOCAB_SIZE)
    levels = (raw >> np.uint64(32)) % np.uint64(_LEVELS)
    table = (levels.astype(np.float32) / 32 - 4).reshape(_NUM_ROWS, VOCAB_SIZE)
    table.setflags(write=False)
    return table


class SymbolicTokenizer(Tokenizer):
    """Text for the symbolic model: pieces of a few bytes, some of them parts of a character."""

    def __init__(self) -> None:
        """Needs no other tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return VOCAB_SIZE

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text, which is no text itself."""
        return min(EOS_TOKEN_IDS)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Gives the text of some ids."""
        pieces = (_PIECES[token_id] for token_id in token_ids if token_id < len(_PIECES))
        return b"".join(pieces).decode("utf-8", "replace")

    decode_uncleaned = decode

    def decode_token(self, token_id: int) -> str:
        """Return the text of one id."""
        return self.decode([token_id])

    @cached_property
    def cleans_up(self) -> bool:
        """Nothing is taken away."""
        return False

    @cached_property
    def decoder_rules(self) -> DecoderRules:
        """Text that was given stays."""
        return DecoderRules(is_streamable=True, has_byte_tokens=False)

    def visible_token(self, token_id: int) -> str | None:
        """Gives a name for the token, or None if it is no text."""
        return str(token_id) if token_id < len(_PIECES) else None

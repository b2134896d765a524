"""The symbolic model tells every difference of tokens, order, position and salt."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oracle.symbolic import VOCAB_SIZE, PrefixHash, SymbolicTokenizer, logits_of
from refinfer.tokenizer import IncrementalDetokenizer

TOKENS = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=12)


def values_of(token_ids, salt=None, first_position=0):
    prefix = PrefixHash(salt=salt)
    return [prefix.push(token_id, first_position + place) for place, token_id in enumerate(token_ids)]


@given(first=TOKENS, second=TOKENS)
def test_equal_values_mean_equal_prefixes(first, second):
    for place, (own, other) in enumerate(zip(values_of(first), values_of(second), strict=False)):
        assert (own == other) == (first[: place + 1] == second[: place + 1])


@given(token_ids=TOKENS, cut=st.integers(0, 12))
def test_values_do_not_depend_on_chunks(token_ids, cut):
    whole = values_of(token_ids)
    rest = PrefixHash(whole[:cut])
    assert whole[cut:] == [rest.push(token_ids[place], place) for place in range(cut, len(token_ids))]


def test_position_and_salt_change_values():
    assert len({values_of([1], salt, first)[0] for salt in (None, "", "a") for first in (0, 1, 70_000)}) == 9


def test_logits_are_the_same_alone_and_together():
    values = values_of(range(VOCAB_SIZE))
    together = logits_of(values)
    assert together.shape == (VOCAB_SIZE, VOCAB_SIZE)
    assert all(np.array_equal(logits_of([value])[0], row) for value, row in zip(values, together, strict=True))
    assert len({row.tobytes() for row in together}) == VOCAB_SIZE


@given(token_ids=TOKENS)
def test_text_put_together_is_the_whole_text(token_ids):
    tokenizer = SymbolicTokenizer()
    detokenizer = IncrementalDetokenizer(tokenizer)
    parts = [detokenizer.push(token_id) for token_id in token_ids]
    assert "".join([*parts, detokenizer.finish()]) == tokenizer.decode(token_ids)

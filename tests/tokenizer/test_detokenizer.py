"""Text that has been given stands, and all of it together is what decoding everything gives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.tokenizer import IncrementalDetokenizer

REPLACEMENT = "\ufffd"


def pieces(tokenizer, token_ids):
    """What each push gives, and what `finish` gives."""
    detokenizer = IncrementalDetokenizer(tokenizer)
    return [detokenizer.push(token_id) for token_id in token_ids] + [detokenizer.finish()]


def ids_of(tokenizer, *tokens):
    backend = tokenizer._hugging_face_tokenizer.backend_tokenizer
    return [backend.token_to_id(token) for token in tokens]


@settings(deadline=None)
@given(data=st.data())
def test_pieces_together_equal_decoding_everything(tokenizer, data):
    """Whatever the ids are: special, unknown to the tokenizer, halves of characters, bytes that are no UTF-8."""
    num_ids = tokenizer.vocab_size + 3
    token_ids = data.draw(st.lists(st.integers(0, num_ids - 1), max_size=80), label="token ids")
    assert "".join(pieces(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@settings(deadline=None)
@given(data=st.data())
def test_pieces_together_equal_decoding_everything_when_few_ids_repeat(tokenizer, data):
    """Long runs of the same: blanks, bytes, replacement characters, tokens without text."""
    few = data.draw(st.lists(st.integers(0, tokenizer.vocab_size), min_size=1, max_size=3), label="few ids")
    token_ids = data.draw(st.lists(st.sampled_from(few), max_size=120), label="token ids")
    assert "".join(pieces(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@settings(deadline=None)
@given(text=st.text(max_size=60), num_cut=st.integers(0, 5))
def test_pieces_together_equal_decoding_everything_for_encoded_text(tokenizer, text, num_cut):
    """Real text, ended anywhere, so also inside a character."""
    token_ids = tokenizer.encode(text)
    token_ids = token_ids[: max(0, len(token_ids) - num_cut)]
    assert "".join(pieces(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@pytest.mark.parametrize("text", [" .", " n't", "a ' b", "it ' s", "a ' ' ' b", "  .", " 've 're", "n 't"])
def test_pieces_together_equal_decoding_everything_where_blanks_are_cleaned_up(metaspace, text):
    assert metaspace.cleans_up
    token_ids = [token_id for word in text.split(" ") for token_id in ids_of(metaspace, "▁", *word) if token_id]
    assert "".join(pieces(metaspace, token_ids)) == metaspace.decode(token_ids)


@pytest.mark.parametrize(
    "kind", ["byte_level", "byte_fallback", "metaspace", "word_piece", "no_decoder"], indirect=True
)
def test_detokenizer_gives_a_plain_token_at_once(kind):
    """But for a blank at the end, which clean-up may take away."""
    token_ids = kind.encode("the dog")
    given_before_the_end = "".join(pieces(kind, token_ids)[:-1])
    assert given_before_the_end == kind.decode(token_ids)


def test_detokenizer_holds_the_first_bytes_of_a_character(byte_level):
    token_ids = ids_of(byte_level, "a", "ð", "Ł", "Ļ", "Ĥ", "b")  # the four bytes of 🙂, as byte-level BPE writes them
    assert pieces(byte_level, token_ids) == ["a", "", "", "", "🙂", "b", ""]


def test_detokenizer_gives_an_unfinished_character_at_the_end(byte_level):
    token_ids = ids_of(byte_level, "a", "ð", "Ł")
    assert pieces(byte_level, token_ids) == ["a", "", "", REPLACEMENT]


def test_detokenizer_holds_one_replacement_character_and_no_more(byte_level):
    """A model may write U+FFFD again and again; each is held only until the next token."""
    token_ids = ids_of(byte_level, REPLACEMENT) * 5
    assert pieces(byte_level, token_ids) == ["", *[REPLACEMENT] * 5]


def test_detokenizer_holds_one_invalid_byte_and_no_more(byte_level):
    token_ids = ids_of(byte_level, "ÿ") * 5  # 0xFF, which no UTF-8 text has
    assert pieces(byte_level, token_ids) == ["", *[REPLACEMENT] * 5]


def test_detokenizer_holds_a_run_of_byte_tokens_until_it_ends(byte_fallback):
    """One invalid byte would turn the whole run, valid characters included, into replacement characters."""
    valid = ["<0xE6>", "<0x97>", "<0xA5>", "<0xE6>", "<0x9C>", "<0xAC>"]
    assert pieces(byte_fallback, ids_of(byte_fallback, *valid, "a")) == ["", "", "", "", "", "", "日本a", ""]
    assert pieces(byte_fallback, ids_of(byte_fallback, *valid, "<0xFF>", "a"))[-2:] == [REPLACEMENT * 7 + "a", ""]


def test_detokenizer_does_not_end_a_run_of_byte_tokens_at_a_special_token(byte_fallback):
    """Special tokens are dropped before bytes are joined."""
    token_ids = ids_of(byte_fallback, "<0xE6>", "</s>", "<0x97>", "<0xA5>", "a")
    assert pieces(byte_fallback, token_ids) == ["", "", "", "", "日a", ""]


def test_detokenizer_forgets_no_run_of_byte_tokens_behind_tokens_without_text(byte_fallback):
    """Cutting the context inside such a run would change how the run shows."""
    token_ids = ids_of(byte_fallback, "<0x61>", *["<0xC3>", "<0xA9>"] * 10, *[""] * 11, "a")
    assert "".join(pieces(byte_fallback, token_ids)) == "a" + "é" * 10 + "a"


def test_detokenizer_remembers_the_beginning_behind_tokens_without_text(byte_fallback):
    """Only the first blank of all is stripped, however long ago it was."""
    token_ids = ids_of(byte_fallback, "a", *[""] * 40, "▁", "a")
    assert "".join(pieces(byte_fallback, token_ids)) == "a a"


def test_detokenizer_strips_the_first_blank_only(byte_fallback):
    assert pieces(byte_fallback, ids_of(byte_fallback, "▁", "▁", "▁▁", "a")) == ["", " ", "  ", "a", ""]


def test_detokenizer_gives_nothing_for_special_and_unknown_ids(byte_level):
    token_ids = [*ids_of(byte_level, "<s>", "</s>"), byte_level.vocab_size, 10**6]
    assert pieces(byte_level, token_ids) == ["", "", "", "", ""]


def test_detokenizer_holds_everything_where_the_decoder_promises_nothing(pattern_in_decoder):
    token_ids = ids_of(pattern_in_decoder, "a", "e", "e")
    assert pieces(pattern_in_decoder, token_ids) == ["", "", "", "a"]


@pytest.mark.parametrize("text", ["a dog " * 400, "🙂" * 400, "👩‍👩‍👧" * 200, REPLACEMENT * 400, " " * 400])
def test_detokenizer_decodes_a_bounded_number_of_tokens_for_each(byte_level, text, monkeypatch):
    lengths = []
    decode = byte_level.decode_uncleaned

    def count(token_ids):
        lengths.append(len(token_ids))
        return decode(token_ids)

    monkeypatch.setattr(byte_level, "decode_uncleaned", count)
    token_ids = byte_level.encode(text)
    pieces(byte_level, token_ids)
    assert sum(lengths) <= 32 * len(token_ids)

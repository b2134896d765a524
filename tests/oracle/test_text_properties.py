"""Equal tokenizers pass; an id or a character that differs is seen."""

from unittest import mock

import pytest

from oracle.case import Case
from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.errors import TextMismatch
from oracle.scenario import RequestSpec, Scenario
from oracle.text_properties import check_detokenising, check_prompt_ids, check_text
from refinfer.tokenizer import IncrementalDetokenizer, Tokenizer

SPEC = CheckpointSpec(num_layers=1, vocab_size=288, with_tokenizer=True)
TEXTS = ["", "the other", "日本 café \U0001f600", "<s>again</s>", "<|user|> x", "  two  spaces "]


@pytest.fixture(scope="module")
def folder():
    """A checkpoint with a tokenizer."""
    return cached_checkpoint(SPEC)


def test_prompt_ids_of_equal_tokenizers_pass(folder):
    check_prompt_ids(folder, TEXTS)


def test_decoded_text_of_equal_tokenizers_passes(folder):
    tokenizer = Tokenizer.from_folder(folder)
    check_detokenising(folder, [[], *(tokenizer.encode(text) for text in TEXTS), list(range(288))])


def test_an_added_token_is_seen(folder):
    encode = Tokenizer.encode
    with (
        mock.patch.object(Tokenizer, "encode", lambda self, text: [0, *encode(self, text)]),
        pytest.raises(TextMismatch, match=r"encode\('the other'\) gives"),
    ):
        check_prompt_ids(folder, ["the other"])


def test_a_dropped_token_of_a_conversation_is_seen(folder):
    encode_chat = Tokenizer.encode_chat
    with (
        mock.patch.object(Tokenizer, "encode_chat", lambda self, messages: encode_chat(self, messages)[:-1]),
        pytest.raises(TextMismatch, match="encode_chat"),
    ):
        check_prompt_ids(folder, ["the other"])


@pytest.mark.parametrize("method", ["push", "finish"])
def test_a_wrong_character_is_seen(folder, method):
    right = getattr(IncrementalDetokenizer, method)
    with (
        mock.patch.object(IncrementalDetokenizer, method, lambda self, *ids: right(self, *ids) + "x"),
        pytest.raises(TextMismatch, match="put together give"),
    ):
        check_detokenising(folder, [Tokenizer.from_folder(folder).encode("日本")])


def case_of(spec, *texts):
    """A case with texts."""
    return Case(Scenario(requests=(RequestSpec((1, 2, 3)),), texts=texts, checkpoint=spec))


def test_text_is_witnessed_by_a_text_and_a_tokenizer_only():
    assert check_text(case_of(SPEC, "the other"), "none").witnessed
    assert not check_text(case_of(SPEC), "none").witnessed
    assert not check_text(case_of(CheckpointSpec(num_layers=1), "the other"), "none").witnessed

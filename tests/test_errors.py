"""The base of all errors: a sentence, and its values to read."""

import pickle

import pytest

from refinfer.errors import PromptTooLongError, RefinferError


def test_error_shows_its_message_and_gives_its_values():
    error = PromptTooLongError("a prompt of 9 tokens, limit 8", num_tokens=9, limit=8)
    assert str(error) == "a prompt of 9 tokens, limit 8"
    assert (error.num_tokens, error.limit) == (9, 8)


def test_error_refuses_a_name_that_its_message_does_not_show():
    with pytest.raises(AttributeError, match="RefinferError has no value named 'other'"):
        _ = RefinferError("a sentence", value=1).other


def test_error_keeps_its_values_across_processes():
    error = pickle.loads(pickle.dumps(PromptTooLongError("too long", limit=8)))  # noqa: S301 (our own bytes)
    assert isinstance(error, PromptTooLongError)
    assert (str(error), error.limit) == ("too long", 8)

"""The base of all errors: a sentence, and its values to read."""

import pickle

import pytest

from oracle.errors import LogitsMismatch, OracleError


def test_error_shows_its_message_and_gives_its_values():
    error = LogitsMismatch("0.9 apart, bound 0.8", difference=0.9, bound=0.8)
    assert str(error) == "0.9 apart, bound 0.8"
    assert (error.difference, error.bound) == (0.9, 0.8)


def test_error_refuses_a_name_that_its_message_does_not_show():
    with pytest.raises(AttributeError, match="OracleError has no value named 'other'"):
        _ = OracleError("a sentence", value=1).other


def test_error_keeps_its_values_across_processes():
    error = pickle.loads(pickle.dumps(LogitsMismatch("too far", bound=0.8)))  # noqa: S301 (our own bytes)
    assert isinstance(error, LogitsMismatch)
    assert (str(error), error.bound) == ("too far", 0.8)

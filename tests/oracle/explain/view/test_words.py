"""A number, a place and a verdict are said so that nothing is lost and nothing is made up."""

from dataclasses import replace

import pytest

from oracle.explain.clues import Place
from oracle.explain.view.words import exact, facts_of_place, headline, listed, measured, number, remarks, room_for


@pytest.mark.parametrize(
    ("value", "short", "whole_digits"),
    [
        (0.123456789, "0.123457", "0.123456789"),
        (0.0, "0", "0.0"),
        (None, "unknown", "unknown"),
        (float("nan"), "not a number", "not a number"),
        (float("inf"), "infinite", "infinite"),
    ],
)
def test_number_is_said_short_and_exactly(value, short, whole_digits):
    assert number(value) == short
    assert exact(value) == whole_digits
    assert measured("off by", value) == ("off by", short, whole_digits)


def test_place_leaves_out_what_it_does_not_have():
    assert [(fact.label, fact.text) for fact in facts_of_place(Place(None, 3))] == [
        ("step", "none: the request by itself"),
        ("request", "3"),
    ]
    assert [fact.text for fact in facts_of_place(Place(0, 1, 2, 4, 0))] == ["0", "1, sample 2", "4", "0"]


def test_headline_says_what_failed_where_and_what_is_to_blame(whole, bare):
    assert headline(whole) == ("schedules fails on paged;", "to blame: cache, swapping blocks.")
    assert headline(bare) == ("schedules fails on scripted 1.0;", "what is to blame is not known.")


@pytest.mark.parametrize(
    ("survives", "words"), [(True, "came while"), (False, "did not come"), (None, "was not watched")]
)
def test_remarks_say_whether_the_failure_was_watched(whole, survives, words):
    assert words in " ".join(remarks(replace(whole, survives_watching=survives)))


def test_remarks_count_verdicts_only_where_there_are_some(whole, bare):
    assert "1 of 3 verdicts" in " ".join(remarks(whole))
    assert "verdicts" not in " ".join(remarks(bare))


def test_listed_says_what_stands_for_nothing():
    assert listed(["a", "b"], none="nothing") == "a, b"
    assert listed([], none="nothing") == "nothing"


def test_room_grows_with_the_longest_name():
    assert room_for([]) < room_for(["request 0"]) < room_for(["request 0", "request 0, sample 1"])

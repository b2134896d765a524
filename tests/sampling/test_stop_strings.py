"""Text that is cut before a stop string: at the same place however it comes, and shown as early as it can be."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refinfer.sampling import StopStringWatcher

# Two letters, so that stop strings overlap, contain and continue each other.
texts = st.text(alphabet="ab", max_size=24)
stop_lists = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)
piece_lists = st.lists(st.text(alphabet="ab", max_size=4), max_size=10)


def plain_cut(text, stop_strings, num_deaf=0):
    """Where the text ends and which string ends it, character by character; the first characters complete none."""
    for end in range(num_deaf + 1, len(text) + 1):
        complete = [stop_string for stop_string in stop_strings if text[:end].endswith(stop_string)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def fed(stop_strings, pieces, num_deaf_pieces=0):
    """All that a watcher shows of the pieces, and the stop string that it found."""
    watcher = StopStringWatcher(stop_strings)
    shown = "".join(watcher.feed(piece, can_stop=index >= num_deaf_pieces) for index, piece in enumerate(pieces))
    return shown + watcher.finish(), watcher.stop_string


@given(pieces=piece_lists, stop_strings=stop_lists, num_deaf_pieces=st.integers(0, 4))
@example(pieces=["ab", "a"], stop_strings=["aba", "b"], num_deaf_pieces=0)
@example(pieces=["a", "a", "a"], stop_strings=["aa"], num_deaf_pieces=2)
@example(pieces=["bb", "ab"], stop_strings=["bbab", "ab"], num_deaf_pieces=0)
def test_pieces_do_not_change_the_visible_text(pieces, stop_strings, num_deaf_pieces):
    num_deaf = len("".join(pieces[:num_deaf_pieces]))
    expected = plain_cut("".join(pieces), stop_strings, num_deaf)
    assert fed(stop_strings, pieces, num_deaf_pieces) == expected


@given(text=texts, stop_strings=stop_lists)
def test_text_as_a_whole_is_cut_where_a_search_finds_the_first_complete_string(text, stop_strings):
    found = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stop_strings if stop in text]
    expected = (text[: min(found)[1]], min(found)[2]) if found else (text, None)
    assert fed(stop_strings, [text]) == expected


@given(pieces=piece_lists, stop_strings=stop_lists)
def test_exactly_the_longest_tail_that_begins_a_stop_string_is_held_back(pieces, stop_strings):
    watcher = StopStringWatcher(stop_strings)
    shown = known = ""
    for piece in pieces:
        known += piece
        shown += watcher.feed(piece)
        if watcher.stop_string is not None:
            break
        beginnings = {stop[:length] for stop in stop_strings for length in range(len(stop))} | {""}
        longest = max((start for start in beginnings if known.endswith(start)), key=len)
        assert shown == known[: len(known) - len(longest)]


def test_of_strings_complete_with_one_character_the_longest_counts():
    assert fed(["c", "abc", "bc"], ["xab", "cd"]) == ("x", "abc")


def test_the_string_that_is_complete_first_counts_even_if_it_begins_later():
    assert fed(["abcd", "bc"], ["xabcd"]) == ("xa", "bc")


@pytest.mark.parametrize("cut", range(6))
def test_stop_string_is_found_across_the_border_of_tokens(cut):
    assert fed(["Paris"], ["in Paris"[: 3 + cut], "in Paris!"[3 + cut :]]) == ("in ", "Paris")


def test_text_after_a_stop_string_is_never_shown():
    watcher = StopStringWatcher(["b"])
    assert [watcher.feed("ab"), watcher.feed("a"), watcher.finish()] == ["a", "", ""]


def test_text_held_back_is_shown_at_the_end_and_once():
    watcher = StopStringWatcher(["stop"])
    assert [watcher.feed("a st"), watcher.feed("o"), watcher.finish(), watcher.finish()] == ["a ", "", "sto", ""]


def test_near_match_is_shown_as_soon_as_it_has_failed():
    watcher = StopStringWatcher(["aab"])
    assert [watcher.feed("aa"), watcher.feed("a"), watcher.feed("c")] == ["", "a", "aac"]


def test_string_complete_too_early_is_text_and_may_begin_another():
    watcher = StopStringWatcher(["aa"])
    assert [watcher.feed("aa", can_stop=False), watcher.feed("b"), watcher.stop_string] == ["a", "ab", None]
    assert [watcher.feed("a"), watcher.feed("a"), watcher.stop_string] == ["", "", "aa"]


def test_watcher_without_stop_strings_holds_nothing_back():
    assert StopStringWatcher([]).feed("abc") == "abc"

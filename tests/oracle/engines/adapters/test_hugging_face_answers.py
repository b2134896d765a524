"""What `generate` gives is told as it is; only padding after an end is cut."""

import pytest

from oracle.engines.adapters.hugging_face_answers import left_padded, likeliest, to_sample, without_padding
from oracle.engines.messages import EngineSample


def test_left_padded_lets_all_prompts_end_at_one_place():
    assert left_padded([[5], [6, 7, 8]], 9) == ([[9, 9, 5], [6, 7, 8]], [[0, 0, 1], [1, 1, 1]])


def test_left_padded_takes_an_empty_prompt():
    assert left_padded([()], 0) == ([[]], [[]])


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([5, 6, 2], [5, 6, 2]),
        ([5, 2, 0, 0], [5, 2]),
        ([5, 0, 0], [5, 0, 0]),
        ([5, 2, 0, 7], [5, 2, 0, 7]),
        ([5, 2, 3], [5, 2, 3]),
    ],
    ids=["stop-last", "padded", "pad-without-stop", "went-on", "another-stop"],
)
def test_without_padding_cuts_only_what_fills_up_after_an_end(row, expected):
    assert without_padding(row, [2, 3], 0) == expected


def test_without_padding_cuts_where_the_stop_token_itself_pads():
    assert without_padding([5, 2, 2, 2], [2], 2) == [5, 2]


def test_to_sample_takes_as_many_scores_as_tokens():
    rows = [[-1.0, -0.5], [-0.5, -1.0], [0.0, 0.0]]
    sample = to_sample([1, 0], logprobs=[-0.5, -0.5, 0.0], rows=rows, number=1, logits=rows)
    assert sample == EngineSample(
        (1, 0), logprobs=(-0.5, -0.5), top_logprobs=({1: -0.5}, {0: -0.5}), logits=((-1.0, -0.5), (-0.5, -1.0))
    )


def test_to_sample_says_nothing_of_what_it_was_not_given():
    assert to_sample([4]) == EngineSample((4,))


def test_likeliest_takes_the_lower_id_of_equals():
    assert likeliest([-2.0, -1.0, -1.0], 1) == {1: -1.0}

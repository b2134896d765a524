"""A timeline tells of every sample when it waited, ran, was preempted and ended."""

from dataclasses import replace

import pytest

from oracle.explain.course import Step, StepRow
from oracle.explain.view.timeline import kind_of, lanes_of, marks_of, prompt_lengths


def lane(explanation, request, sample=0):
    """The row of one sample."""
    return next(own for own in lanes_of(explanation) if own.key == (request, sample))


def test_lanes_follow_the_life_of_each_sample(whole):
    assert [own.state for own in lane(whole, 0).steps] == ["running", "preempted", "running", "running"]
    assert [own.state for own in lane(whole, 0, 1).steps] == [None, None, "running", None]
    assert [own.state for own in lane(whole, 1).steps] == ["waiting", "waiting", "running", None]


def test_lanes_tell_prefill_from_decoding(whole):
    assert [own.kind for own in lane(whole, 0).steps] == ["prefill", None, "decode", "decode"]
    assert lane(whole, 0, 1).steps[2].kind == "prefill"


def test_lanes_tell_what_befell_a_sample(whole):
    steps = lane(whole, 0).steps
    assert [happening.words for happening in steps[0].before] == ["arrived", "admitted"]
    assert [happening.words for happening in steps[1].before] == ["preempted (swap)"]
    assert [happening.words for happening in steps[2].before] == ["swapped in", "admitted"]
    assert [happening.words for happening in steps[3].after] == ["finished (length)"]
    assert [happening.words for happening in lane(whole, 0, 1).steps[3].before] == ["aborted"]


def test_sample_is_nothing_after_its_end(whole):
    later = replace(whole, steps=(*whole.steps, Step(4)))
    assert lane(later, 0).steps[4].is_empty
    assert not lane(later, 0).steps[3].is_empty


def test_request_that_only_arrives_has_a_lane(whole):
    waiting = replace(whole, steps=(Step(0, arrived=(2,)), Step(1)))
    assert [own.name for own in lanes_of(waiting)] == ["request 2"]
    assert [own.state for own in lane(waiting, 2).steps] == ["waiting", "waiting"]


def test_no_steps_give_no_lanes(bare):
    assert lanes_of(bare) == []


def test_marks_stand_in_the_order_of_cause_and_effect(whole, bare):
    assert [(mark.kind, mark.place.step) for mark in marks_of(whole)] == [("write", 0), ("read", 2), ("token", 2)]
    assert marks_of(bare) == []


@pytest.mark.parametrize(
    ("row", "lengths", "kind"),
    [
        (StepRow(0, 0, 2, 1, 0, ()), [3], "prefill"),
        (StepRow(0, 0, 3, 1, 0, ()), [3], "decode"),
        (StepRow(0, 0, 2, 2, 0, ()), [3], "prefill"),
        (StepRow(1, 0, 0, 5, 0, ()), [3], "prefill"),
        (StepRow(1, 0, 0, 5, 4, ()), [3], "decode"),
    ],
)
def test_kind_of_goes_by_the_prompt_where_it_is_known(row, lengths, kind):
    assert kind_of(row, lengths) == kind


@pytest.mark.parametrize("scenario", [{}, {"requests": None}, {"requests": [{}]}])
def test_prompt_lengths_are_none_where_a_scenario_says_none(scenario):
    assert prompt_lengths(scenario) == []

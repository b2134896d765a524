"""Every rung says its answer or why there is none."""

from dataclasses import replace

import pytest

from oracle.explain.clues import FirstOperation, Place
from oracle.explain.explanation import Need
from oracle.explain.view.ladder import features_by_need, minimal_sentence, rungs_of


def rung(explanation, name):
    """One rung."""
    return next(own for own in rungs_of(explanation) if own.name == name)


def facts(explanation, name):
    """The figures of one rung."""
    return {fact.label: fact.text for fact in rung(explanation, name).facts}


def test_rungs_stand_in_the_order_of_the_ladder(whole, bare):
    names = ["token", "write", "read", "operation", "features"]
    assert [own.name for own in rungs_of(whole)] == names
    assert [own.name for own in rungs_of(bare)] == names
    assert [own.is_reached for own in rungs_of(whole)] == [True, True, True, False, True]
    assert not any(own.is_reached for own in rungs_of(bare))


def test_token_shows_both_margins_and_its_verdict(whole):
    assert rung(whole, "token").verdict == "wrong"
    assert facts(whole, "token") == {
        "output": "1",
        "step": "2",
        "request": "0",
        "position": "4",
        "came": "8",
        "due": "5",
        "own margin, float64": "0.251235",
        "referee's margin, float64": "0.751235",
        "bound of rounding": "0.00012345",
    }


@pytest.mark.parametrize("field", ["referee_margin", "bound"])
def test_token_without_a_referee_says_so(whole, field):
    unjudged = replace(whole, token=replace(whole.token, **{field: None}))
    assert "no referee" in rung(unjudged, "token").sentence
    assert "referee scores" in rung(whole, "token").sentence


@pytest.mark.parametrize(("steps", "words"), [(2, "2 steps later"), (None, "No output parts after it")])
def test_write_says_when_the_output_goes_wrong(whole, steps, words):
    later = replace(whole, write=replace(whole.write, num_steps_before_token=steps))
    assert words in rung(later, "write").sentence


def test_read_says_whether_the_tables_or_the_tensor_is_wrong(whole):
    assert "the tensor is not" in rung(whole, "read").sentence
    tables = replace(whole, read=replace(whole.read, is_bookkeeping=True, part=None, largest=None, written_step=None))
    assert "the block tables lead to it" in rung(tables, "read").sentence
    assert facts(tables, "read")["written in"] == "never"
    assert facts(tables, "read")["off by"] == "unknown"
    assert "part" not in facts(tables, "read")


def test_operation_names_its_inputs_and_what_it_was_held_against(whole):
    operation = FirstOperation("model.norm", Place(None, 0, 0, 1), 0.5, 0.25, ("a", "b"), "witness")
    shown = facts(replace(whole, operation=operation), "operation")
    assert shown["inputs that agree"] == "a, b"
    assert shown["held against"] == "witness"
    assert (shown["off by"], shown["permitted"]) == ("0.5", "0.25")


def test_rung_that_was_left_out_says_so(whole):
    assert rung(replace(whole, rungs=()), "operation").sentence == "It was not looked for."
    assert rung(whole, "operation").sentence == "No answer: every operation follows."


def test_features_are_sorted_by_need(whole):
    groups = features_by_need(whole.features)
    assert [(need, [own.name for own in features]) for need, features in groups] == [
        (Need.NEEDED, ["swap"]),
        (Need.NOT_NEEDED, ["batching"]),
        (Need.NOT_PRESENT, ["aborts"]),
    ]
    assert features_by_need(whole.features[:1])[0][0] is Need.NEEDED
    assert len(features_by_need(whole.features[:1])) == 1


@pytest.mark.parametrize(
    ("minimal", "words"), [(None, "was not searched"), ((), "every one of these"), (("a", "b"), "turned off: a, b.")]
)
def test_minimal_set_is_said_in_a_sentence(whole, minimal, words):
    assert words in minimal_sentence(replace(whole, minimal=minimal))

"""Each lane is silent where nothing is wrong, and tells in which way it saw what is."""

from unittest.mock import Mock

import pytest

from oracle.drive import Drive
from oracle.errors import InvariantViolation, NeverEnds, OutcomeMismatch, TextMismatch
from oracle.faults import FAULTS
from oracle.matrix.case_looks import CASE_LOOKS
from oracle.matrix.kills import RULES, SIGHTS
from oracle.matrix.lanes import CaseLane, LawLane, ModelLane, SymbolicLane, driven_to_its_end, generated_cases
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import requests_of, symbolic_core
from refinfer.errors import InvariantError

pytestmark = pytest.mark.without_shape_checks

EVERYTHING = frozenset({*SIGHTS, *RULES})


def lanes():
    """One of each kind, from their beginnings."""
    return SymbolicLane(0), ModelLane(0), CaseLane(0, 20), LawLane(0)


def sightings(lane, num_examples):
    """The ways that saw something, with the example that showed it first."""
    seen: dict[str, tuple[int, str]] = {}
    for number in range(1, num_examples + 1):
        for name, message in lane.next_example(EVERYTHING):
            seen.setdefault(name, (number, message))
    return seen


@pytest.mark.parametrize(("place", "num_examples"), [(0, 60), (1, 8), (2, 4), (3, 20)], ids=str)
def test_lane_sees_nothing_where_nothing_is_wrong(place, num_examples):
    lane = lanes()[place]
    assert sightings(lane, num_examples) == {}
    assert lane.scenario is None or lane.scenario.requests


def test_lanes_have_every_way_of_looking():
    shown = frozenset().union(*(lane.shows for lane in lanes()))
    assert shown == EVERYTHING
    assert shown >= CASE_LOOKS


@pytest.mark.parametrize(
    ("name", "place", "num_examples", "ways"),
    [
        ("outputs_lost_on_preemption", 0, 60, {"symbolic"}),
        ("norm_epsilon", 1, 1, {"reference logits", "1e-3", "1e-4"}),
        ("norm_epsilon", 2, 1, {"reference logits"}),
        ("first_eos_only", 1, 60, {"greedy", "contract"}),
        ("whole_distribution_replaces", 3, 5, {"distribution"}),
        ("truncated_shard_accepted", 2, 3, {"loader"}),
        ("newest_block_not_released", 0, 1, {"lifecycle", "state"}),
        ("freed_while_shared", 0, 1, {"lifecycle", "symbolic"}),
        ("salt_ignored", 1, 1, {"lifecycle"}),
    ],
)
def test_lane_sees_a_fault_in_its_ways(name, place, num_examples, ways):
    lane = lanes()[place]
    with FAULTS[name].planted():
        seen = sightings(lane, num_examples)
    assert ways <= seen.keys()
    assert seen.keys() <= lane.shows


@pytest.mark.parametrize(
    ("place", "alone"),
    [(0, "oracle.matrix.lanes.symbolic_answers"), (1, "oracle.case.Case.loaded")],
    ids=["symbolic", "model"],
)
def test_what_a_request_raises_alone_is_seen(monkeypatch, place, alone):
    monkeypatch.setattr(alone, Mock(side_effect=IndexError("out of range")))
    assert list(lanes()[place].next_example(EVERYTHING)) == [("lifecycle", "IndexError: out of range")]


def test_lane_of_cases_ends_with_them():
    lane = CaseLane(0, 1)
    assert lane.next_example(frozenset()) is not None
    assert lane.next_example(frozenset()) is None


def test_lane_looks_only_in_the_ways_that_are_wanted():
    lane = ModelLane(0)
    with FAULTS["norm_epsilon"].planted():
        assert {name for name, _ in lane.next_example(frozenset({"1e-4"}))} == {"1e-4"}


@pytest.mark.parametrize(
    ("error", "has_ended", "way"),
    [
        (InvariantViolation("left over"), True, "lifecycle"),
        (NeverEnds("no end"), False, "lifecycle"),
        (OutcomeMismatch("told wrongly"), False, "contract"),
        (IndexError("out of range"), False, "lifecycle"),
        (InvariantError("logits hold NaN"), False, "poison"),
        (TextMismatch("taken back"), False, "text"),
    ],
    ids=["leak", "no end", "told wrongly", "crash", "NaN", "text taken back"],
)
def test_what_a_run_raises_is_told_apart(monkeypatch, error, has_ended, way):
    scenario = Scenario((RequestSpec((1,), max_tokens=1),), checkpoint=None, is_symbolic=True)
    drive = Drive(symbolic_core(scenario, "paged"), scenario, requests_of(scenario))
    monkeypatch.setattr(drive, "run", Mock(side_effect=error))
    ended, seen = driven_to_its_end(drive)
    assert (ended, [name for name, _ in seen]) == (has_ended, [way])


def test_cases_are_different_and_share_no_checkpoint_often():
    cases = generated_cases(3, 12)
    assert len(set(cases)) == len(cases) >= 8
    specs = [case.checkpoint for case in cases]
    assert max(map(specs.count, specs)) <= 2
    assert generated_cases(3, 12) == cases

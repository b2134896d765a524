from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from oracle.case import Case
from oracle.checkpoints import CheckpointSpec
from oracle.errors import ReferenceUnavailable
from oracle.faults import FAULTS
from oracle.matrix import case_looks
from oracle.matrix.case_looks import CASE_LOOKS, look_at_case
from oracle.matrix.kills import RULES, SIGHTS
from oracle.properties import MODES_BUT_GATHER, PROPERTIES
from oracle.scenario import RequestSpec, Scenario

pytestmark = pytest.mark.without_shape_checks

SCENARIO = Scenario(
    (RequestSpec((5, 9, 0, 17, 2, 30), max_tokens=4, cuts=(2,)), RequestSpec((11,), max_tokens=6)),
    checkpoint=CheckpointSpec(num_heads=2, num_kv_heads=1, eos_token_ids=tuple(range(1, 97, 3))),
)
EVERYTHING = frozenset({*SIGHTS, *RULES})


def test_case_without_a_fault_is_seen_in_no_way():
    assert list(look_at_case(Case(SCENARIO), EVERYTHING)) == []


def test_ways_of_a_case_are_columns():
    assert set(SIGHTS) > CASE_LOOKS


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("attention_scale_missing", {"reference logits", "1e-3", "1e-4"}),
        ("padding_attended", {"reference logits", "bitwise"}),
        ("eos_ignored_as_first_token", {"contract"}),
    ],
)
def test_fault_is_seen_in_its_ways(name, ways):
    with FAULTS[name].planted():
        seen = {way for way, _ in look_at_case(Case(SCENARIO), EVERYTHING)}
    assert ways <= seen


def test_what_a_subject_raises_is_a_matter_of_its_life(monkeypatch):
    monkeypatch.setattr("oracle.case.Case.records_in_order", lambda *_: 1 // 0)
    seen = {way for way, _ in look_at_case(Case(SCENARIO), frozenset({"greedy", "poison"}))}
    assert seen == {"lifecycle"}


def test_logits_that_are_no_numbers_are_poison(monkeypatch):
    records = Case.records

    def spoiled(case, mode):
        first, *rest = records(case, mode)
        return [replace(first, logits=torch.full_like(first.logits, torch.nan)), *rest]

    monkeypatch.setattr(Case, "records", spoiled)
    seen = list(look_at_case(Case(SCENARIO), frozenset({"poison"})))
    assert len(seen) == len(MODES_BUT_GATHER)
    assert seen[0] == ("poison", "none, request 0: logits hold NaN: a place was read that nobody wrote")


def test_what_the_harness_cannot_judge_is_seen_in_no_way(monkeypatch):
    monkeypatch.setattr(case_looks, "observe", Mock(side_effect=ReferenceUnavailable("no reference")))
    assert list(look_at_case(Case(SCENARIO), frozenset({"greedy"}))) == []


def test_all_properties_look_in_some_way_but_two():
    """One is about the oracles alone, and schedules have lanes of their own."""
    assert {prop.name for prop in PROPERTIES} - case_looks._WAY_BY_PROPERTY.keys() == {"oracles_agree", "schedules"}


def test_usual_rules_are_not_asked_in_half_precision():
    scenario = Scenario(SCENARIO.requests, dtype="bfloat16", checkpoint=SCENARIO.checkpoint)
    assert list(look_at_case(Case(scenario), frozenset(RULES))) == []

"""Any schedule gives what each of its requests gives alone: tiny models, every mode, both manners."""

from itertools import cycle

import pytest

from oracle.choosers import RandomChooser
from oracle.schedule_properties import CHECKPOINTS
from oracle.schedule_strategies import choose_model_schedule
from oracle.schedule_witness import FEATURES, WitnessTable
from oracle.subjects import MODES
from refinfer.cache import paged_view

pytestmark = pytest.mark.without_shape_checks

NUM_PARTS = 4
NUM_SCHEDULES = 50
"""Of each part, so that several processes share the parts of 200."""


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_schedules_change_no_bit_of_any_request(runs, part):
    choose, table = RandomChooser(part), WitnessTable()
    for _ in range(NUM_SCHEDULES):
        scenario = choose_model_schedule(choose, CHECKPOINTS, batch_invariant=True)
        seen = {mode: runs.run(scenario, mode) for mode in MODES}
        table.see(*seen["paged"])
    assert not table.missing(FEATURES)


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_schedules_change_no_token_in_the_plain_manner_but_near_ties(runs, part):
    """Each schedule in one mode, the modes taking turns."""
    choose, table = RandomChooser(part), WitnessTable()
    for _, mode in zip(range(NUM_SCHEDULES), cycle(MODES), strict=False):
        scenario = choose_model_schedule(choose, CHECKPOINTS, batch_invariant=False)
        seen = runs.run(scenario, mode)
        if mode.startswith("paged"):
            table.see(*seen)
    assert not table.missing(("preemption", "split", "abort"))


@pytest.mark.parametrize("most_places", [1, 16])
def test_how_many_places_are_read_at_once_changes_no_bit(runs, monkeypatch, most_places):
    """Requests of schedules are shorter than the constant, so that what lies past it never came up."""
    monkeypatch.setattr(paged_view, "_MAX_PLACES_AT_ONCE", most_places)
    num_calls = []
    put_together = paged_view._groups

    def counted(parts):
        found = put_together(parts)
        num_calls.append(len(found))
        return found

    monkeypatch.setattr(paged_view, "_groups", counted)
    choose = RandomChooser(most_places)
    for _ in range(10):
        runs.run(choose_model_schedule(choose, CHECKPOINTS, batch_invariant=True), "paged")
    assert max(num_calls) > 1

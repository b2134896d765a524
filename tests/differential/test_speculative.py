"""Guessed tokens change neither a token nor a bit: tiny models, every proposer, any number of guesses."""

import pytest

from oracle.choosers import RandomChooser
from oracle.drive import Drive
from oracle.schedule_properties import CHECKPOINTS, ModelRuns
from oracle.schedule_strategies import choose_model_schedule
from oracle.schedule_witness import SPECULATIVE_FEATURES, WitnessTable
from refinfer.engine.statistics import EngineStats

pytestmark = pytest.mark.without_shape_checks

NUM_PARTS = 4
NUM_SCHEDULES = 50
"""Of each part, so that several processes share the parts of 200."""

FREQUENT_FEATURES = tuple(feature for feature in SPECULATIVE_FEATURES if feature != "end inside a draft")
"""All but the one that comes up in one of sixty schedules on these models; `test_symbolic_check` sees that one."""

READERS = ("paged", "paged_gather")


@pytest.fixture(scope="module")
def runs() -> ModelRuns:
    """Models that are loaded once."""
    return ModelRuns()


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_guesses_change_no_bit_of_any_schedule(runs, part):
    """Each schedule, in one reader of the paged cache, is held to its requests alone, without a cache or a guess."""
    choose, table = RandomChooser(20 + part), WitnessTable()
    seen = set()
    for place in range(NUM_SCHEDULES):
        scenario = choose_model_schedule(choose, CHECKPOINTS, batch_invariant=True, is_speculative=True)
        table.see(*runs.run(scenario, READERS[place % 2]))
        seen.add((scenario.engine.speculative, scenario.engine.num_speculative_tokens))
    assert not table.missing(FREQUENT_FEATURES)
    assert {who for who, _ in seen} == {"ngram", "scripted", "self", "draft"}
    assert {number for _, number in seen} == {1, 2, 4, 8}


def test_guesses_of_the_model_itself_all_stay(runs):
    """`ModelRuns` refuses one that does not; here it is seen that some had the chance."""
    choose = RandomChooser(12)
    stats: list[EngineStats] = []
    while len(stats) < 12:
        scenario = choose_model_schedule(choose, CHECKPOINTS, batch_invariant=True, is_speculative=True)
        if scenario.engine.speculative == "self":
            drive: Drive = runs.run(scenario, "paged")[0]
            stats.append(drive.core.stats())
    assert sum(own.num_accepted_tokens for own in stats) > 20

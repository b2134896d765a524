"""Guessed tokens change neither a token nor a bit: tiny models, every proposer, any number of guesses."""

import pytest

from oracle.choosers import RandomChooser
from oracle.drive import Drive
from oracle.schedule_properties import CHECKPOINTS, ModelRuns
from oracle.schedule_strategies import choose_model_schedule
from oracle.schedule_witness import SPECULATIVE_FEATURES, WitnessTable
from refinfer.engine.statistics import EngineStats

pytestmark = pytest.mark.without_shape_checks

NUM_SCHEDULES = 40


@pytest.fixture(scope="module")
def runs() -> ModelRuns:
    """Models that are loaded once."""
    return ModelRuns()


@pytest.mark.parametrize("mode", ["paged", "paged_gather"])
def test_guesses_change_no_bit_of_any_schedule(runs, mode):
    """Each schedule is held to its requests alone, without a cache and without a guess."""
    choose, table = RandomChooser(13), WitnessTable()
    seen = set()
    for _ in range(NUM_SCHEDULES):
        scenario = choose_model_schedule(choose, CHECKPOINTS, batch_invariant=True, is_speculative=True)
        table.see(*runs.run(scenario, mode))
        seen.add((scenario.engine.speculative, scenario.engine.num_speculative_tokens))
    assert not table.missing(SPECULATIVE_FEATURES)
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

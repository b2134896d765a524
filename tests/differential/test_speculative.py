"""Guessed tokens change neither a token nor a bit: tiny models, every proposer, any number of guesses."""

from itertools import cycle

import pytest

from oracle.choosers import RandomChooser
from oracle.drive import Drive
from oracle.schedule_properties import CHECKPOINTS
from oracle.schedule_strategies import choose_model_schedule
from oracle.schedule_witness import SPECULATIVE_FEATURES, WitnessTable
from refinfer.engine.statistics import EngineStats

pytestmark = pytest.mark.without_shape_checks

SEEDS = (20, 21, 23, 24)
NUM_SCHEDULES = 50
"""Of each seed, so that several processes share the 200."""

READERS = ("paged", "paged_gather")


@pytest.mark.parametrize("seed", SEEDS)
def test_guesses_change_no_bit_of_any_schedule(runs, seed):
    """Each schedule, in one reader of the paged cache, is held to its requests alone, without a cache or a guess."""
    choose, table = RandomChooser(seed), WitnessTable()
    seen = set()
    for _, reader in zip(range(NUM_SCHEDULES), cycle(READERS), strict=False):
        scenario = choose_model_schedule(choose, CHECKPOINTS, batch_invariant=True, is_speculative=True)
        table.see(*runs.run(scenario, reader))
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

"""Tiny real models: any schedule gives what requests give alone, in every mode and both manners."""

import pytest

from oracle import schedule_properties
from oracle.case import Case
from oracle.choosers import RandomChooser
from oracle.engine_spec import SPECULATIVES, EngineSpec
from oracle.errors import CheckFailed
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import model_core, requests_of
from oracle.schedule_properties import CHECKPOINTS, ModelRuns, check_schedules
from oracle.schedule_strategies import choose_model_schedule
from oracle.subjects import MODES
from refinfer.scheduler import BlockSpace

# As in test_symbolic_check: `without_shape_checks` where that marker exists.
pytestmark = pytest.mark.without_shape_checks

RUNS = ModelRuns()
NUM_SCHEDULES = 8


def test_check_schedules_counts_what_it_saw():
    scenario = Scenario((RequestSpec((1, 2), 2, ignore_eos=True), RequestSpec((3,), 3, ignore_eos=True)))
    observation = check_schedules(Case(scenario), "paged")
    assert (observation.witnessed, observation.num_schedules, observation.num_rows) == (True, 1, 5)


def test_a_wrong_block_is_caught(monkeypatch):
    monkeypatch.setattr(BlockSpace, "_copy_on_write", lambda *_: None)
    forked = RequestSpec((1, 2, 3), 4, ignore_eos=True, sampling=SamplingSpec(n=2))
    with pytest.raises(CheckFailed, match="stands in 2 places"):
        RUNS.run(Scenario((forked,), checkpoint=CHECKPOINTS[0]), "paged")


@pytest.mark.parametrize("mode", MODES)
def test_model_core_is_the_mode_of_that_name(mode):
    scenario = Scenario((RequestSpec((1, 2), 2),))
    core = model_core(Case(scenario).loaded(batch_invariant=True), scenario, mode)
    assert (core.scheduler.blocks is not None) == mode.startswith("paged")
    assert len(requests_of(scenario)) == 1


@pytest.mark.parametrize("batch_invariant", [True, False], ids=["invariant", "plain"])
@pytest.mark.parametrize("mode", ["paged", "paged_gather"])
def test_schedules_with_guesses_equal_their_requests_alone(batch_invariant, mode):
    choose = RandomChooser(5)
    seen = set()
    for _ in range(NUM_SCHEDULES):
        scenario = choose_model_schedule(choose, CHECKPOINTS[:2], batch_invariant=batch_invariant, is_speculative=True)
        drive, _ = RUNS.run(scenario, mode)
        if drive.core.stats().num_proposed_tokens:
            seen.add(scenario.engine.speculative)
    assert len(seen) > 1, "tokens were guessed, in more ways than one"


@pytest.mark.parametrize("batch_invariant", [True, False], ids=["invariant", "plain"])
@pytest.mark.parametrize("speculative", [None, *SPECULATIVES])
def test_only_the_model_itself_in_the_invariant_manner_must_guess_right(monkeypatch, speculative, batch_invariant):
    asked = []
    monkeypatch.setattr(schedule_properties, "check_guesses", lambda _, *, are_all_right: asked.append(are_all_right))
    engine = EngineSpec(speculative=speculative)
    requests = (RequestSpec((1, 2), 4, ignore_eos=True),)
    scenario = Scenario(requests, checkpoint=CHECKPOINTS[0], engine=engine, batch_invariant=batch_invariant)
    drive, _ = RUNS.run(scenario, "paged")
    assert asked == [speculative == "self" and batch_invariant]
    assert (drive.num_steps == 2) is (speculative in ("self", "scripted"))

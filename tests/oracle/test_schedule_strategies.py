"""Schedules are legal, simple first, and have every feature often enough."""

from dataclasses import fields

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from oracle.checkpoints import CheckpointSpec
from oracle.choosers import RandomChooser
from oracle.engine_spec import GUESSES, SPECULATIVES
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_strategies import (
    _ALL_SETTINGS,
    choose_model_schedule,
    choose_symbolic_schedule,
    symbolic_schedules,
)
from oracle.schedule_witness import FEATURES, PAIRS, WitnessTable
from oracle.symbolic import VOCAB_SIZE
from oracle.symbolic_check import run_symbolic

pytestmark = pytest.mark.without_shape_checks

EXACTLY = settings(suppress_health_check=list(HealthCheck), database=None, phases=(Phase.generate, Phase.shrink))
NUM_SCHEDULES = 300


def test_every_parameter_may_come_up():
    assert set().union(*_ALL_SETTINGS) == {field.name for field in fields(SamplingSpec)}


@settings(suppress_health_check=list(HealthCheck))
@given(scenario=symbolic_schedules())
def test_schedules_are_legal_and_survive_json(scenario):
    assert Scenario.from_json(scenario.to_json()) == scenario
    assert all(max(request.prompt_token_ids) < VOCAB_SIZE for request in scenario.requests)


@pytest.mark.parametrize(
    ("condition", "changes"),
    [
        (lambda _: True, {}),
        (lambda scenario: scenario.engine.block_size < 8, {"block_size": 4}),
        (lambda scenario: scenario.engine.enable_prefix_caching, {"enable_prefix_caching": True}),
    ],
    ids=["anything", "blocks", "caching"],
)
def test_schedule_shrinks_to_what_a_failure_needs(condition, changes):
    smallest = find(symbolic_schedules(), condition, settings=EXACTLY)
    simplest = Scenario((RequestSpec((0,)),), checkpoint=None, is_symbolic=True)
    assert smallest.requests == simplest.requests
    assert smallest.script == ()
    assert smallest.engine == type(smallest.engine)(**changes)


def test_every_feature_comes_up_often_and_every_pair_at_all():
    choose, table = RandomChooser(0), WitnessTable()
    for _ in range(NUM_SCHEDULES):
        table.see(run_symbolic(choose_symbolic_schedule(choose), "paged"))
    shares = {name: table.share(name) for name in FEATURES}
    assert {name: share for name, share in shares.items() if share < 0.05} == {}
    assert set(table.missing((*FEATURES, *PAIRS))) <= {"prompt_logprobs × chunk × hit"}, PAIRS


@settings(suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1000))
def test_schedules_of_models_fit_them(seed):
    spec = CheckpointSpec(vocab_size=97)
    scenario = choose_model_schedule(RandomChooser(seed), (spec,), batch_invariant=True)
    assert scenario.max_model_len <= spec.max_position_embeddings
    assert not any(request.sampling.stop for request in scenario.requests)


@pytest.mark.parametrize("is_speculative", [None, True, False])
def test_schedules_guess_in_every_way_always_or_never(is_speculative):
    choose = RandomChooser(0)
    engines = [choose_symbolic_schedule(choose, is_speculative=is_speculative).engine for _ in range(NUM_SCHEDULES)]
    expected = {None: {None, *SPECULATIVES}, True: set(SPECULATIVES), False: {None}}[is_speculative]
    assert {engine.speculative for engine in engines} == expected
    scripts = [engine.guesses for engine in engines if engine.speculative == "scripted"]
    assert {guess for script in scripts for guess in script} == (set() if is_speculative is False else set(GUESSES))
    silent = [engine for engine in engines if engine.speculative is None]
    assert {(engine.num_speculative_tokens, engine.guesses) for engine in silent} <= {(4, ("right",))}

"""Engines are set up as a scenario says."""

import inspect
from dataclasses import fields, replace
from typing import Any

import pytest

from oracle import schedule_core
from oracle.case import Case
from oracle.checked_proposer import CheckedProposer
from oracle.checkpoints import CheckpointSpec
from oracle.engine_spec import SPECULATIVES, EngineSpec
from oracle.errors import ScenarioError
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import (
    FIRST_FREE_SEED,
    block_space_of,
    model_core,
    num_blocks_of,
    requests_of,
    scheduler_of,
    symbolic_core,
)
from oracle.scripted_proposer import ScriptedProposer
from oracle.scripted_scheduler import ScriptedScheduler
from oracle.symbolic_check import SYMBOLIC_MODES, symbolic_answers
from refinfer.config import EngineConfig, engine_config
from refinfer.config.engine_config import CACHES, CACHES_BY_OPTION, PREEMPTIONS, SCHEDULINGS
from refinfer.engine.assembly import make_scheduler
from refinfer.engine.core import EngineCore
from refinfer.scheduler import BlockSpace, ContinuousScheduler
from refinfer.speculative import DraftModelProposer, NgramProposer


def scenario_of(**engine):
    requests = (RequestSpec((1,) * 7, 3), RequestSpec((1,), 1, sampling=SamplingSpec(seed=9), cache_salt="a"))
    return Scenario(requests, checkpoint=None, engine=EngineSpec(**engine), is_symbolic=True)


def test_spare_blocks_come_on_top_of_the_longest_request():
    assert num_blocks_of(scenario_of(block_size=4, num_spare_blocks=2)) == 3 + 2
    assert num_blocks_of(scenario_of(block_size=4)) == 3 * 3


def test_requests_have_fixed_seeds():
    assert [(request.seed, request.cache_salt) for request in requests_of(scenario_of())] == [
        (FIRST_FREE_SEED, None),
        (9, "a"),
    ]


def test_settings_reach_the_blocks():
    space = block_space_of(scenario_of(block_size=2, num_spare_blocks=0, num_swap_blocks=1))
    assert (space.block_size, space.pool.num_blocks, space.num_swap_blocks, space.prefix) == (2, 5, 1, None)


def test_settings_of_blocks_are_all_that_the_shipped_ones_are_told(monkeypatch):
    """A setting that only the shipped engine hands on would never be varied by a schedule."""
    told = {}

    def recorded(*arguments, **named):
        told.update(inspect.signature(BlockSpace).bind(*arguments, **named).arguments)
        return BlockSpace(*arguments, **named)

    monkeypatch.setattr(schedule_core, "BlockSpace", recorded)
    block_space_of(scenario_of())
    assert set(told) == set(inspect.signature(BlockSpace).parameters)


def test_every_option_of_some_caches_is_one_of_a_schedule_but_for_those_with_a_reason():
    own = {field.name for field in fields(EngineSpec)}
    others = {"num_blocks", "kv_cache_memory"} | {"paged_attention"}
    assert set(CACHES_BY_OPTION) - own == others, "spare blocks stand for the first two, and modes for the last"


@pytest.mark.parametrize("cache", CACHES)
def test_scheduler_is_of_the_shipped_kind_and_scripted_where_requests_join(cache):
    config = EngineConfig(cache=cache)
    own, shipped = scheduler_of(scenario_of(), config, None), make_scheduler(config, None)
    assert type(own) is (ScriptedScheduler if isinstance(shipped, ContinuousScheduler) else type(shipped))
    assert isinstance(own, type(shipped))


@pytest.mark.parametrize(("option", "values"), [("scheduling", SCHEDULINGS), ("preemption", PREEMPTIONS)])
def test_scheduler_tells_every_value_of_a_policy_from_the_others(option, values):
    config = EngineConfig(cache="continuous")
    schedulers = [vars(scheduler_of(scenario_of(**{option: value}), config, None)) for value in values]
    policies = [tuple(own for own in parts.values() if isinstance(own, bool)) for parts in schedulers]
    assert len(set(policies)) == len(values)


@pytest.mark.parametrize("mode", ["paged_gather", "radix"])
def test_symbolic_core_refuses_a_mode_without_a_runner_on_the_symbolic_model(monkeypatch, mode):
    """Also one that was added to the list of caches, and to nothing else."""
    monkeypatch.setattr(engine_config, "CACHES", (*CACHES, "radix"))
    with pytest.raises(
        ScenarioError, match=f"mode '{mode}' has no runner on the symbolic model; .* none, st"
    ) as caught:
        symbolic_core(scenario_of(), mode)
    assert caught.value.mode == mode


@pytest.mark.parametrize("mode", SYMBOLIC_MODES)
def test_symbolic_core_has_blocks_in_the_paged_mode_only(mode):
    assert (symbolic_core(scenario_of(), mode).scheduler.blocks is not None) == (mode == "paged")


@pytest.mark.parametrize("speculative", [None, *SPECULATIVES])
def test_requests_are_seeded_throughout_where_a_model_guesses(speculative):
    """A guess that was drawn by itself would decide which token comes of a request without a seed."""
    unseeded, seeded = requests_of(scenario_of(speculative=speculative))
    assert unseeded.params.seed == (FIRST_FREE_SEED if speculative in ("self", "draft") else None)
    assert (unseeded.seed, seeded.seed, seeded.params.seed) == (FIRST_FREE_SEED, 9, 9)
    assert replace(unseeded.params, seed=None) == scenario_of().requests[0].params


def proposer_in(core: EngineCore) -> Any:
    return None if core._speculation is None else core._speculation._proposer


@pytest.mark.parametrize(
    ("speculative", "kind"),
    [
        (None, type(None)),
        ("ngram", NgramProposer),
        ("scripted", ScriptedProposer),
        ("self", ScriptedProposer),
        ("draft", ScriptedProposer),
    ],
)
@pytest.mark.parametrize("mode", SYMBOLIC_MODES)
def test_symbolic_core_guesses_over_blocks_only_and_has_no_second_model(mode, speculative, kind):
    scenario = scenario_of(speculative=speculative, num_speculative_tokens=3)
    expected = symbolic_answers(scenario)
    assert proposer_in(symbolic_core(scenario, mode)) is None
    core = symbolic_core(scenario, mode, expected)
    assert type(proposer_in(core)) is (kind if mode == "paged" else type(None))
    if core._speculation is not None:
        assert core._speculation._num_speculative_tokens == 3


@pytest.fixture(scope="module")
def model_case():
    """Makes a case on a tiny model."""

    def make(speculative, *, batch_invariant=True):
        scenario = replace(
            scenario_of(speculative=speculative, num_spare_blocks=1),
            is_symbolic=False,
            batch_invariant=batch_invariant,
            checkpoint=CheckpointSpec(num_layers=2, eos_token_ids=(9, 4)),
        )
        return Case(scenario)

    return make


@pytest.mark.parametrize("batch_invariant", [True, False], ids=["invariant", "plain"])
@pytest.mark.parametrize("speculative", [None, *SPECULATIVES])
def test_model_core_guesses_with_what_the_scenario_says(model_case, speculative, batch_invariant):
    case = model_case(speculative, batch_invariant=batch_invariant)
    loaded = case.loaded(batch_invariant=batch_invariant)
    arguments = case.lone_samples, case.draft_model
    assert proposer_in(model_core(loaded, case.scenario, "paged")) is None
    assert proposer_in(model_core(loaded, case.scenario, "continuous", *arguments)) is None
    proposer = proposer_in(model_core(loaded, case.scenario, "paged", *arguments))
    drafting: Any = CheckedProposer if batch_invariant else DraftModelProposer
    kinds: dict[str | None, Any] = {None: type(None), "ngram": NgramProposer, "scripted": ScriptedProposer}
    assert type(proposer) is kinds.get(speculative, drafting)
    if speculative in ("self", "draft"):
        inner = proposer._proposer if batch_invariant else proposer
        assert inner._model is (loaded.model if speculative == "self" else case.draft_model)
        assert inner.num_free_blocks == num_blocks_of(case.scenario)
        assert not batch_invariant or proposer._model is inner._model

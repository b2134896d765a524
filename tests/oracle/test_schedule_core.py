"""Engines are set up as a scenario says."""

from dataclasses import replace
from typing import Any

import pytest

from oracle.case import Case
from oracle.checked_proposer import CheckedProposer
from oracle.checkpoints import CheckpointSpec
from oracle.engine_spec import SPECULATIVES, EngineSpec
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import (
    FIRST_FREE_SEED,
    block_space_of,
    model_core,
    num_blocks_of,
    requests_of,
    scripted_proposer,
    symbolic_core,
)
from oracle.scripted_proposer import ScriptedProposer
from oracle.symbolic_check import SYMBOLIC_MODES, symbolic_answers
from refinfer.engine.core import EngineCore
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


def test_script_knows_what_every_sample_gives_alone():
    requests = (RequestSpec((1,), 2), RequestSpec((2,), 3, ignore_eos=True, sampling=SamplingSpec(n=2, seed=1)))
    scenario = replace(scenario_of(speculative="scripted", guesses=("end",)), requests=requests)
    expected = symbolic_answers(scenario)
    proposer = scripted_proposer(scenario, expected, 15, 16)
    assert isinstance(proposer, ScriptedProposer)
    assert dict(proposer._token_ids_by_answer) == {
        ("0", 0): expected[0][0].output.token_ids,
        ("1", 0): expected[1][0].output.token_ids,
        ("1", 1): expected[1][1].output.token_ids,
    }
    assert (proposer._guesses, proposer._end_token_id, proposer._vocab_size) == (("end",), 15, 16)

"""What guesses is what the scenario names, and nothing guesses under any other name."""

from dataclasses import replace

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.engine_spec import SPECULATIVES, EngineSpec
from oracle.errors import ScenarioError
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_proposers import model_proposer, scripted_proposer, symbolic_proposer
from oracle.scripted_proposer import ScriptedProposer
from oracle.symbolic_check import symbolic_answers
from refinfer.engine import LoadedModel


def scenario_of(speculative, **changes):
    engine = EngineSpec(speculative=speculative, guesses=("end",))
    return Scenario((RequestSpec((1,), 2),), checkpoint=None, engine=engine, is_symbolic=True, **changes)


@pytest.fixture
def unlisted():
    """A scenario whose engine was checked when something else was in the list."""
    scenario = scenario_of("scripted")
    object.__setattr__(scenario.engine, "speculative", "medusa")
    return scenario


@pytest.fixture(scope="module")
def loaded():
    return LoadedModel.load(cached_checkpoint(CheckpointSpec(num_layers=1)), dtype="float32", batch_invariant=True)


@pytest.mark.parametrize("speculative", SPECULATIVES)
def test_every_name_that_a_scenario_may_have_is_known_to_both(loaded, speculative):
    scenario = scenario_of(speculative)
    assert symbolic_proposer(scenario, symbolic_answers(scenario)) is not None
    assert model_proposer(loaded, scenario, 4, [], None) is not None


def test_proposers_refuse_a_name_that_nothing_guesses_under(unlisted, loaded):
    words = "nothing guesses for speculative='medusa'; choose one of ngram, scripted, self, draft"
    with pytest.raises(ScenarioError, match=words) as caught:
        symbolic_proposer(unlisted, [])
    assert caught.value.speculative == "medusa"
    with pytest.raises(ScenarioError, match=words):
        model_proposer(loaded, unlisted, 4, [], None)


def test_script_knows_what_every_sample_gives_alone():
    requests = (RequestSpec((1,), 2), RequestSpec((2,), 3, ignore_eos=True, sampling=SamplingSpec(n=2, seed=1)))
    scenario = replace(scenario_of("scripted"), requests=requests)
    expected = symbolic_answers(scenario)
    proposer = scripted_proposer(scenario, expected, 15, 16)
    assert isinstance(proposer, ScriptedProposer)
    assert dict(proposer._token_ids_by_answer) == {
        ("0", 0): expected[0][0].output.token_ids,
        ("1", 0): expected[1][0].output.token_ids,
        ("1", 1): expected[1][1].output.token_ids,
    }
    assert (proposer._guesses, proposer._end_token_id, proposer._vocab_size) == (("end",), 15, 16)

import pytest

from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.engines.faulty_engine import FAULTS
from oracle.engines.messages import EngineRequest
from oracle.engines.teaching_engine import TeachingEngine
from oracle.explain.explain_engine import explain_engine
from oracle.explain.explain_scenario import NothingFailed
from oracle.explain.explanation import Need

LONG = EngineRequest("r0", tuple(range(3, 40)), 6, {"logit_bias": [[5, 8.0]]})
SHORT = EngineRequest("r1", (4, 5, 6), 6, {})
SCENARIO = EngineScenario((SHORT, LONG))


def explained(engine):
    """An engine's failure on the scenario, explained."""
    return explain_engine(SCENARIO, EngineSession(engine, engine.declare()), command="again")


def test_right_engine_has_nothing_to_explain():
    with pytest.raises(NothingFailed):
        explained(TeachingEngine())


def test_parameter_that_is_dropped_is_blamed():
    explanation = explained(FAULTS["bias_dropped"].engine())
    assert explanation.kind == "engine"
    assert "logit_bias" in explanation.blame.operation
    needs = {feature.name: feature.need for feature in explanation.features}
    assert needs["sampling: logit_bias"] is Need.NEEDED
    assert needs["earlier runs"] is Need.NOT_PRESENT
    assert explanation.token.place.request == 1
    assert explanation.token.referee_margin is not None


def test_ladder_says_what_the_engine_lacks():
    rungs = {rung.name: rung for rung in explained(FAULTS["bias_dropped"].engine()).rungs}
    assert rungs["token"].is_reached
    assert not rungs["operation"].is_reached
    assert "shows no keys, values or activations" in rungs["operation"].note

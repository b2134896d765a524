"""A scenario of an engine is the same after a trip through JSON, and other files are refused."""

import json

import pytest

from oracle.contract.scenario import EngineScenario
from oracle.engines.messages import EngineRequest
from oracle.errors import ScenarioError
from oracle.families import FamilySpec

REQUEST = EngineRequest("r0", (1, 2), 3, {"logit_bias": [[4, 1.5]], "seed": 2**31}, arrival=2, abort_after=1)


@pytest.mark.parametrize("family", [None, FamilySpec("gemma2", seed=3, head_dim=64, eos_token_ids=(1,))])
def test_scenario_is_the_same_after_a_trip_through_a_file(tmp_path, family):
    scenario = EngineScenario((REQUEST,), {"block_size": 4, "draft": None}, family, ((REQUEST, REQUEST),), "x 1.0")
    path = tmp_path / "case.json"
    path.write_text(scenario.to_json(), encoding="utf-8")
    assert EngineScenario.load(path) == scenario
    assert EngineScenario.is_one(path.read_text("utf-8"))


@pytest.mark.parametrize("text", ["", "[]", '{"version": 4}', "3"])
def test_other_documents_are_no_scenario_of_an_engine(text):
    assert not EngineScenario.is_one(text)
    with pytest.raises(ScenarioError, match="no scenario of an engine"):
        EngineScenario.from_json(text)


def test_file_that_cannot_be_read_holds_no_scenario_of_an_engine(tmp_path):
    path = tmp_path / "case.json"
    assert not EngineScenario.is_in(path)
    path.write_bytes(b"\xff")
    assert not EngineScenario.is_in(path)
    path.write_text(EngineScenario((REQUEST,)).to_json(), encoding="utf-8")
    assert EngineScenario.is_in(path)


def test_scenario_refuses_another_version():
    data = json.loads(EngineScenario((REQUEST,)).to_json()) | {"engine_scenario": 99}
    with pytest.raises(ScenarioError, match="version 99, and 1 is read here"):
        EngineScenario.from_json(json.dumps(data))

"""What an engine gave is found again for the same model and requests, whatever the settings; no other file is read."""

from dataclasses import replace

import pytest

from oracle.contract.recording import OtherEngine, Recording, key_of
from oracle.contract.scenario import EngineScenario
from oracle.engines.adapter import Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample
from oracle.errors import ScenarioError

REQUEST = EngineRequest("r0", (1, 2), 3, {"top_k": 2})
SCENARIO = EngineScenario((REQUEST,), {"block_size": 16})
RUN = EngineRun((EngineOutput("r0", (EngineSample((4, 5), "stop"),)),), {"steps": 2})


class ScriptedEngine:
    """Gives one run, or refuses to open."""

    def __init__(self, *, refuses=False):
        self.opened = []
        self._refuses = refuses

    def declare(self):
        return EngineDeclaration("scripted", parameters=("top_k",), knobs={"block_size": [8, 16]})

    def open(self, folder, knobs):
        if self._refuses:
            raise Refused(folder)
        self.opened.append((folder, knobs))

    def run(self, requests):
        del requests
        return RUN

    def close(self):
        pass


def test_recording_gives_back_what_was_added_after_a_trip_through_a_file(tmp_path):
    recording = Recording("scripted")
    recording.add(SCENARIO, RUN)
    recording.save(tmp_path / "runs.json")
    assert Recording.load(tmp_path / "runs.json").find(replace(SCENARIO, knobs={})) == RUN


def test_recording_knows_nothing_of_other_requests():
    recording = Recording("scripted")
    recording.add(SCENARIO, RUN)
    assert recording.find(replace(SCENARIO, requests=(replace(REQUEST, max_tokens=4),))) is None


@pytest.mark.parametrize("change", [{"knobs": {}}, {"before": ((REQUEST,),)}, {"engine": "other"}])
def test_settings_do_not_change_the_key(change):
    assert key_of(replace(SCENARIO, **change)) == key_of(SCENARIO)


@pytest.mark.parametrize("text", ["", "[]", '{"recording": 99, "engine": "x", "runs": {}}', '{"engine": "x"}'])
def test_recording_refuses_other_files(tmp_path, text):
    path = tmp_path / "runs.json"
    path.write_text(text)
    with pytest.raises(ScenarioError, match="recording"):
        Recording.load(path)


def test_other_engine_runs_the_same_requests_with_its_own_simplest_settings(tmp_path):
    engine = ScriptedEngine()
    other = OtherEngine(engine, tmp_path)
    scenario = replace(SCENARIO, family=None)
    assert [other.find(scenario), other.find(scenario)] == [RUN, RUN]
    assert engine.opened == [(str(tmp_path), {"block_size": 8})]


@pytest.mark.parametrize(
    ("engine", "request_of_it"),
    [(ScriptedEngine(), replace(REQUEST, parameters={"min_p": 0.1})), (ScriptedEngine(refuses=True), REQUEST)],
    ids=["a parameter that it lacks", "a model that it refuses"],
)
def test_other_engine_says_nothing_of_what_it_does_not_take(tmp_path, engine, request_of_it):
    assert OtherEngine(engine, tmp_path).find(replace(SCENARIO, family=None, requests=(request_of_it,))) is None


MIXED = (
    replace(REQUEST, parameters={}, arrival=3, abort_after=1),
    EngineRequest("r1", (4, 5), 3, {"temperature": 1.0, "seed": 1}),
    EngineRequest("r2", (6,), 3),
)


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({"capabilities": ("arrivals", "aborts")}, [3]),
        ({"capabilities": ()}, [3]),
        ({"capabilities": (), "shares_parameters": True}, [1, 1, 1]),
        ({"capabilities": (), "max_num_requests": 2}, [1, 1, 1]),
    ],
    ids=["takes all", "takes no arrivals", "shares parameters", "takes two at most"],
)
def test_regression_other_engine_is_asked_only_what_it_takes(tmp_path, scripted_engine, declare, fields, sizes):
    """It got arrivals, aborts and mixed parameters also where it had declared to take none, and was blamed for that."""
    engine = scripted_engine(declare(**fields))
    run = OtherEngine(engine, tmp_path).find(EngineScenario(MIXED, family=None))
    assert run is not None
    assert [len(requests) for requests in engine.ran] == sizes
    assert [output.request_id for output in run.outputs] == ["r0", "r1", "r2"]
    first = engine.ran[0][0]
    assert (first.arrival, first.abort_after) == ((3, 1) if fields["capabilities"] else (0, None))


def test_other_engine_says_nothing_of_values_that_it_does_not_take(tmp_path, scripted_engine, declare):
    engine = scripted_engine(declare(parameter_values={"temperature": [0.5]}))
    assert OtherEngine(engine, tmp_path).find(EngineScenario(MIXED, family=None)) is None
    assert engine.ran == []

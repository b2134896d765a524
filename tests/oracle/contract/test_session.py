"""An engine is opened when it has to be, its model's limits are read from its files, and its silence is a finding."""

import json

import pytest

from oracle.contract.findings import Findings, Kind
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession, open_model_referee
from oracle.engines.messages import EngineRequest
from oracle.errors import EngineCrashed, EngineRaised, ReferenceUnavailable
from oracle.families import FamilySpec, cached_family_checkpoint

REQUESTS = (EngineRequest("r0", (1, 2, 3), 4), EngineRequest("r1", (4, 5), 3, {"top_k": 2, "temperature": 1.0}))
SCENARIO = EngineScenario(REQUESTS, family=None)


@pytest.fixture
def session_of(scripted_engine, scripted_referee, scripted_folder):
    """Makes a session over a scripted engine, and gives both."""

    def make(engine=None, **options):
        engine = engine or scripted_engine()
        given = {"folder": scripted_folder, "open_referee": lambda _folder, _dtype: scripted_referee(), **options}
        return engine, EngineSession(engine, engine.declare(), **given)

    return make


def test_engine_is_opened_once_for_equal_settings_and_anew_for_others(session_of):
    engine, session = session_of()
    session.open(SCENARIO)
    session.open(EngineScenario((), family=None))
    session.open(EngineScenario((), {"block_size": 4}, None))
    session.open(EngineScenario((), {"block_size": 4}, None), fresh=True)
    assert [knobs for _, knobs in engine.opened] == [{}, {"block_size": 4}, {"block_size": 4}]


def test_limits_are_read_from_the_files_of_the_model(session_of, scripted_folder):
    _, session = session_of()
    limits = session.open(SCENARIO).limits
    config = json.loads((scripted_folder / "config.json").read_text("utf-8"))
    assert (limits.vocab_size, limits.eos_token_ids) == (config["vocab_size"], tuple(config["eos_token_id"]))
    assert limits.max_model_len == 200
    assert limits.is_known


def test_generated_checkpoint_is_the_family_of_the_scenario(session_of):
    engine, session = session_of(folder=None)
    model = session.open(EngineScenario((), family=FamilySpec("qwen2")))
    assert model.folder == cached_family_checkpoint(FamilySpec("qwen2"))
    assert engine.opened[0][0] == str(model.folder)
    assert model.limits.eos_token_ids == FamilySpec("qwen2").eos_token_ids


def test_scenario_without_a_model_asks_for_one(session_of):
    _, session = session_of(folder=None)
    with pytest.raises(ReferenceUnavailable, match="--model"):
        session.open(SCENARIO)


def test_engine_that_opens_no_checkpoint_has_no_referee(session_of, scripted_engine, declare):
    engine, session = session_of(scripted_engine(declare(families=())), folder=None)
    model = session.open(SCENARIO)
    assert (model.folder, model.referee, model.limits.is_known) == (None, None, False)
    assert engine.opened == [("", {})]


def test_engine_whose_ids_are_no_tokens_has_no_referee(session_of, scripted_engine, declare):
    _, session = session_of(scripted_engine(declare(units="characters")))
    assert session.open(SCENARIO).referee is None


def test_folder_that_transformers_cannot_load_has_no_referee(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    assert open_model_referee(tmp_path, "float32") is None


def test_right_engine_is_judged_and_nothing_is_wrong(session_of):
    _, session = session_of()
    findings = Findings()
    trial = session.judge(SCENARIO, findings)
    assert findings.wrong() == []
    assert findings.num_seen["alive"] == 1
    assert findings.num_seen["tokens"] > 0
    assert trial is not None


def test_engine_that_does_not_answer_is_a_finding_and_is_opened_anew(session_of, scripted_engine):
    class Failing(scripted_engine):  # type: ignore[valid-type, misc]
        errors = iter((EngineCrashed("it ended with status 3"), EngineRaised("ValueError: token 4 at 17")))

        def run(self, requests):
            for error in self.errors:
                raise error
            return super().run(requests)

    engine, session = session_of(Failing())
    found = Findings()
    assert [session.judge(SCENARIO, found) for _ in range(2)] == [None, None]
    assert session.judge(SCENARIO, found) is not None
    assert [(one.check, one.kind, one.blame) for one in found.found] == [
        ("alive", Kind.WRONG, ("EngineCrashed",)),
        ("alive", Kind.WRONG, ("ValueError: token  at ",)),
    ]
    assert len(engine.opened) == 3


def test_what_another_engine_gave_is_held_against_it(session_of, scripted_engine):
    other = scripted_engine(row_of=lambda token_ids: [float(place == len(token_ids) % 5) for place in range(24)])
    _, session = session_of(against=lambda scenario: other.run(scenario.requests))
    findings = Findings()
    session.judge(SCENARIO, findings)
    assert {finding.check for finding in findings.wrong()} == {"agreement"}

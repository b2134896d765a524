"""A scenario is run in every way that is compared, and in no way that the engine does not have."""

import pytest

from oracle.contract.scenario import EngineScenario
from oracle.contract.trial import as_alone, output_of, run_trial
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun

FIRST = EngineRequest("r0", (1, 2), 3, {"top_k": 2}, arrival=4)
ABORTED = EngineRequest("r1", (3,), 5, abort_after=1)
LAST = EngineRequest("r2", (4, 5), 2)
ALONE = [EngineRequest("r0", (1, 2), 3, {"top_k": 2}), LAST]


def trial_of(engine, *requests, before=()):
    """What comes of running requests on an engine."""
    scenario = EngineScenario(requests, family=None, before=before)
    return run_trial(engine, scenario, engine.declare(), None, eos_token_ids=(7,), vocab_size=24)


def test_requests_run_together_again_reversed_and_alone(scripted_engine):
    engine = scripted_engine()
    trial = trial_of(engine, FIRST, ABORTED, LAST, before=((LAST,),))
    together = (FIRST, ABORTED, LAST)
    assert engine.ran == [(LAST,), together, together, together[::-1], *((own,) for own in ALONE)]
    assert [name for name, _, _ in trial.runs()] == ["together", "again", "reversed", "r0 alone", "r2 alone"]
    assert [requests for _, requests, _ in trial.runs()][-1] == (LAST,)
    assert trial.request("r1") == ABORTED


def test_engine_that_runs_one_at_a_time_is_asked_twice(scripted_engine, declare):
    engine = scripted_engine(declare(capabilities=()))
    assert trial_of(engine, FIRST, LAST).reversed is None
    assert engine.ran == [(FIRST, LAST)] * 2


def test_request_alone_comes_at_once_and_is_not_aborted():
    own = as_alone(EngineRequest("r0", (1,), 2, {"n": 2}, arrival=3, abort_after=1))
    assert own == EngineRequest("r0", (1,), 2, {"n": 2})


@pytest.mark.parametrize(("ids", "found"), [(("r0", "r1"), True), (("r1",), False), (("r0", "r0"), False)])
def test_output_of_a_request_is_its_only_one(ids, found):
    run = EngineRun(tuple(map(EngineOutput, ids)))
    assert (output_of(run, "r0") is not None) is found

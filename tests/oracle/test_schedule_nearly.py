"""In the plain manner rounding passes, and nothing else does."""

from dataclasses import replace

import pytest

from oracle.case import Case
from oracle.drive import Drive
from oracle.errors import LogitsMismatch, MismatchError
from oracle.observation import Observation
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import model_core, requests_of
from oracle.schedule_nearly import compare_request_nearly

SCENARIO = Scenario((RequestSpec((1, 2, 3), 4, ignore_eos=True),), batch_invariant=False)


@pytest.fixture(scope="module")
def run():
    case = Case(SCENARIO)
    drive = Drive(model_core(case.loaded(batch_invariant=False), SCENARIO, "paged"), SCENARIO, requests_of(SCENARIO))
    drive.run()
    return case, drive.driven[0], case.lone_samples[0]


def compare(run, change=0.0, token_ids=None):
    case, driven, (alone,) = run
    rows = tuple(row + change for row in alone.logits)
    output = alone.output if token_ids is None else replace(alone.output, token_ids=token_ids)
    observation = Observation()
    compare_request_nearly(observation, case, driven, [replace(alone, logits=rows, output=output)], "what")
    return observation


def test_rounding_passes(run):
    assert compare(run, 1e-7).num_near_ties == 0


def test_other_logits_are_seen(run):
    with pytest.raises(LogitsMismatch):
        compare(run, 0.1)


def test_another_token_that_logits_do_not_excuse_is_seen(run):
    token_ids = list(run[2][0].output.token_ids)
    with pytest.raises(MismatchError):
        compare(run, 0.1, [token_ids[0] + 1, *token_ids[1:]])

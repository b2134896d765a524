"""Every check has a name and a question, says what it lacks, and looks at a trial."""

import pytest

from oracle.contract.findings import Findings
from oracle.contract.judging import CHECKS, judge_trial
from oracle.engines.declaration import CAPABILITIES, EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun
from oracle.engines.parameters import PARAMETERS

REQUESTS = (EngineRequest("r0", (1, 2, 3), 4, {"logprobs": 1}), EngineRequest("r1", (4, 5), 3, {"prompt_logprobs": 1}))
BARE = EngineDeclaration("bare")
FULL = EngineDeclaration("full", capabilities=CAPABILITIES, parameters=PARAMETERS)


def test_checks_name_only_what_an_engine_can_declare():
    for check in CHECKS.values():
        assert set(check.capabilities) <= set(CAPABILITIES)
        assert set(check.parameters) <= set(PARAMETERS)
        assert check.question.endswith("?")


@pytest.mark.parametrize("name", CHECKS)
def test_engine_that_has_everything_lacks_nothing(name):
    assert CHECKS[name].reason_to_skip(FULL, has_referee=True) is None


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_lacking_is_told(name):
    check = CHECKS[name]
    reason = check.reason_to_skip(BARE, has_referee=False)
    if check.needs_referee:
        assert reason == "no reference judges this model"
    elif check.capabilities or check.parameters:
        assert reason is not None
        assert (check.capabilities or check.parameters)[0] in reason
    else:
        assert reason is None


def test_every_check_of_a_trial_looks_at_it(scripted_engine, trial_of):
    outputs = scripted_engine().run(REQUESTS).outputs
    findings = Findings()
    judge_trial(trial_of(REQUESTS, outputs), findings, EngineRun(outputs))
    assert findings.wrong() == []
    assert {"form", "tokens", "ends", "scores", "prompt_scores", "repeat", "agreement"} <= set(findings.num_seen)
    assert findings.asked["logprobs"] == 1


def test_trial_that_went_wrong_is_seen(scripted_engine, trial_of):
    outputs = scripted_engine().run(REQUESTS).outputs
    findings = Findings()
    judge_trial(trial_of(REQUESTS, outputs[::-1]), findings)
    assert {finding.check for finding in findings.wrong()} == {"form"}

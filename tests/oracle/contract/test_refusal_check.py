"""What cannot be run is to be refused, and the engine is to go on as if nothing had been."""

from dataclasses import replace

import pytest

from oracle.contract.drawing import Limits
from oracle.contract.findings import Findings
from oracle.contract.refusal_check import check_refusals, illegal_requests
from oracle.engines.messages import EngineOutput, EngineRun, EngineSample
from oracle.errors import EngineCrashed, EngineError, EngineRaised

LIMITS = Limits(24, 100, (6, 7))


def found_on(engine):
    """What was found, by what was asked."""
    findings = Findings()
    found = check_refusals(engine, engine.declare(), LIMITS, findings)
    assert findings.num_seen["refusals"] == len(list(illegal_requests(engine.declare(), LIMITS)))
    return {finding.blame[0]: finding.message for finding, _ in found}


def test_engine_that_refuses_is_right(scripted_engine):
    assert found_on(scripted_engine()) == {}


@pytest.mark.parametrize(
    "what", ["an empty prompt", "a token id beyond the vocabulary", "a negative token id", "temperature -1.0", "n 0"]
)
def test_engine_that_pretends_is_found_by_what_it_took(scripted_engine, what):
    class Pretending(scripted_engine):  # type: ignore[valid-type, misc]
        def run(self, requests):
            if (
                requests[0].request_id == "illegal"
                and requests[0] == dict(illegal_requests(self.declare(), LIMITS))[what]
            ):
                return EngineRun((EngineOutput("illegal", (EngineSample((1,), "length"),)),))
            return super().run(requests)

    assert found_on(Pretending()) == {what: f"{what} was not refused: tokens [[1]], ended with ['length']"}


def test_success_without_a_token_is_no_refusal_unless_none_was_asked_for(scripted_engine):
    def spoil(requests, run):
        empty = EngineOutput("illegal", (EngineSample((), "stop"),))
        return replace(run, outputs=(empty,)) if requests[0].request_id == "illegal" else run

    found = found_on(scripted_engine(spoil=spoil))
    assert "an empty prompt" in found
    assert "max_tokens 0" not in found


def test_error_is_a_refusal_and_a_crash_is_none(scripted_engine):
    class Raising(scripted_engine):  # type: ignore[valid-type, misc]
        error: EngineError = EngineRaised("ValueError: no")

        def run(self, requests):
            if requests[0].request_id == "illegal":
                raise self.error
            return super().run(requests)

    assert found_on(Raising()) == {}
    engine = Raising()
    engine.error = EngineCrashed("it ended")
    with pytest.raises(EngineCrashed):
        found_on(engine)


def test_engine_that_is_another_afterwards_is_found(scripted_engine):
    class Spoiled(scripted_engine):  # type: ignore[valid-type, misc]
        is_spoiled = False

        def run(self, requests):
            run = super().run(requests)
            self.is_spoiled |= not requests[0].prompt_token_ids
            return EngineRun((EngineOutput("plain", (EngineSample((1,)),)),)) if self.is_spoiled else run

    assert "afterwards" in found_on(Spoiled())


def test_parameters_that_an_engine_does_not_take_are_not_tried(declare):
    names = {what.split()[0] for what, _ in illegal_requests(declare(parameters=("top_p",)), LIMITS)}
    assert names == {"an", "a", "max_tokens", "top_p"}
    unknown = replace(LIMITS, is_known=False)
    assert "a token id beyond the vocabulary" not in dict(illegal_requests(declare(), unknown))

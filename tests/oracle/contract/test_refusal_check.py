"""What cannot be run is to be refused, and the engine is to go on as if nothing had been."""

from dataclasses import replace

import pytest

from oracle.contract.drawing import Limits
from oracle.contract.findings import Findings
from oracle.contract.refusal_check import check_refusals, illegal_requests
from oracle.engines.messages import EngineOutput, EngineRun, EngineSample
from oracle.errors import EngineCrashed, EngineHung, EngineProtocolError, EngineRaised

pytestmark = pytest.mark.without_shape_checks

LIMITS = Limits(24, 100, (6, 7))


def found_on(engine, reopen=None):
    """What was found, by what was asked."""
    findings = Findings()
    found = check_refusals(engine, engine.declare(), LIMITS, findings, reopen)
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


class FailingEngine:
    """Raises an error on what is illegal, or on a plain request after an empty prompt."""

    def __init__(self, engine, error, *, afterwards=False):
        self._engine = engine
        self._error = error
        self._afterwards = afterwards
        self.num_opened = 1
        self.is_spoiled = False

    def declare(self):
        return self._engine.declare()

    def open(self, folder, knobs):
        self._engine.open(folder, knobs)

    def close(self):
        self._engine.close()

    def run(self, requests):
        is_illegal = requests[0].request_id == "illegal"
        if self._afterwards:
            self.is_spoiled |= not requests[0].prompt_token_ids
        if is_illegal != self._afterwards and (is_illegal or self.is_spoiled):
            raise self._error
        return self._engine.run(requests)

    def reopen(self):
        self.num_opened += 1
        self.is_spoiled = False


def test_error_is_a_refusal(scripted_engine):
    assert found_on(FailingEngine(scripted_engine(), EngineRaised("ValueError: no"))) == {}


@pytest.mark.parametrize("error", [EngineCrashed("it ended"), EngineHung("no answer"), EngineProtocolError("babble")])
def test_regression_crash_on_something_illegal_is_told_and_the_rest_is_tried(scripted_engine, error):
    """It was a failure of its own, without the request that showed it, and nothing illegal was tried after it."""
    engine = FailingEngine(scripted_engine(), error)
    found = found_on(engine, engine.reopen)
    whats = [what for what, _ in illegal_requests(engine.declare(), LIMITS)]
    assert list(found) == whats
    assert found["an empty prompt"] == f"an empty prompt ended the engine: {error}"
    assert engine.num_opened == 1 + len(whats)


def test_nothing_is_tried_after_a_crash_where_nobody_can_open_the_engine_again(scripted_engine):
    engine = FailingEngine(scripted_engine(), EngineCrashed("it ended"))
    findings = Findings()
    ((finding, request),) = check_refusals(engine, engine.declare(), LIMITS, findings)
    assert (finding.blame, request.prompt_token_ids) == (("an empty prompt",), ())
    assert findings.num_seen["refusals"] == 1


def test_engine_that_fails_afterwards_is_found_and_the_rest_is_tried(scripted_engine):
    engine = FailingEngine(scripted_engine(), EngineRaised("no blocks left"), afterwards=True)
    assert found_on(engine, engine.reopen) == {
        "afterwards": "after an empty prompt, a plain request fails: no blocks left"
    }
    assert engine.num_opened == 2


def test_engine_that_answers_nothing_at_all_is_no_matter_of_refusals(scripted_engine):
    class Silent(scripted_engine):  # type: ignore[valid-type, misc]
        def run(self, *_):
            message = "it ended"
            raise EngineCrashed(message)

    with pytest.raises(EngineCrashed):
        found_on(Silent())


def test_prompts_are_long_enough_not_to_be_refused_for_that(declare):
    requests = dict(illegal_requests(declare(min_prompt_tokens=7), LIMITS))
    assert len(requests["temperature -1.0"].prompt_token_ids) == 7


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

"""A failure is looked for again in a fresh engine, with what ran before only where that is needed."""

import time
from dataclasses import replace

import pytest

from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.outcome import EngineFailure
from oracle.contract.reproducing import judge_again, make_all_small, merged
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.engines.messages import EngineRequest, EngineRun

LONG = EngineRequest("r0", (1, 2, 3, 4, 5, 9), 4)
SHORT = EngineRequest("r1", (4, 5), 3)
SCENARIO = EngineScenario((SHORT, LONG), family=None, before=((SHORT,), (LONG,)))


@pytest.fixture
def failures_of(scripted_engine, scripted_referee, scripted_folder):
    """Judges a scripted engine whose runs are spoiled; gives the failure of a check, made small, and the engine."""

    def made_small(spoil, check, *, first=SCENARIO, engine_type=scripted_engine):
        engine = engine_type(spoil=spoil)
        session = EngineSession(
            engine, engine.declare(), folder=scripted_folder, open_referee=lambda _folder, _dtype: scripted_referee()
        )
        findings = Findings()
        session.judge(first, findings)
        finding = next(one for one in findings.wrong() if one.check == check)
        failure = EngineFailure(finding, first)
        words: list[str] = []
        make_all_small(session, [failure], 30.0, words.append)
        assert words == [f"making a failure of {check} small, 1 of 1"]
        return failure

    return made_small


def without_last(run):
    """A run whose last output is missing."""
    return EngineRun(run.outputs[:-1], run.witnesses)


def test_failure_of_one_request_becomes_that_request_in_a_fresh_engine(failures_of):
    def spoil(requests, run):
        return without_last(run) if any(9 in request.prompt_token_ids for request in requests) else run

    failure = failures_of(spoil, "form")
    assert failure.is_repeatable
    assert failure.scenario.before == ()
    (request,) = failure.scenario.requests
    assert request.prompt_token_ids == (9,)
    assert "missing" in failure.finding.message


def test_failure_that_needs_what_ran_before_keeps_it(failures_of, scripted_engine):
    class Forgetful(scripted_engine):  # type: ignore[valid-type, misc]
        num_runs = 0

        def open(self, folder, knobs):
            super().open(folder, knobs)
            self.num_runs = 0

        def run(self, requests):
            self.num_runs += 1
            run = super().run(requests)
            is_spoiled = len(requests) == 1 and self.num_runs == 2 and requests[0].prompt_token_ids == (7, 8)
            return without_last(run) if is_spoiled else run

    target = EngineRequest("r2", (7, 8), 2)
    first = EngineScenario((target,), family=None, before=((SHORT,),))
    failure = failures_of(lambda _, run: run, "form", first=first, engine_type=Forgetful)
    assert failure.is_repeatable
    assert failure.scenario.requests[0].prompt_token_ids == (7, 8)


def test_failure_that_does_not_come_again_says_so(failures_of):
    spoiled = iter((False, False, True))  # two runs come before the one that is judged
    failure = failures_of(lambda _, run: without_last(run) if next(spoiled, False) else run, "form")
    assert failure.is_repeatable is False
    assert failure.scenario == SCENARIO


def test_failures_that_were_tried_or_have_no_scenario_are_left_alone(scripted_engine, scripted_folder):
    engine = scripted_engine()
    session = EngineSession(engine, engine.declare(), folder=scripted_folder)
    finding = Finding("law", Kind.WRONG, "draws")
    failures = [
        EngineFailure(finding, SCENARIO, is_repeatable=True),
        EngineFailure(finding, None),
        EngineFailure(finding, EngineScenario((), family=None)),
    ]
    begin = time.monotonic()
    make_all_small(session, failures, 30.0)
    assert (engine.ran, failures[1].is_repeatable) == ([], None)
    assert time.monotonic() - begin < 5.0


def test_neighbour_whose_parameters_explain_a_wrong_token_may_go(failures_of):
    """Its parameters explained the token by chance, so that the failure could not be made small."""

    def spoil(_, run):
        changed = tuple(
            replace(output, samples=(replace(output.samples[0], token_ids=(8, *output.samples[0].token_ids[1:])),))
            for output in run.outputs
        )
        return EngineRun(changed, run.witnesses)

    neighbour = EngineRequest("r1", (4, 5), 3, {"allowed_token_ids": [8]})
    failure = failures_of(spoil, "tokens", first=EngineScenario((LONG, neighbour), family=None))
    assert failure.is_repeatable
    assert len(failure.scenario.requests) == 1


def test_failures_that_became_the_same_are_one():
    def failure(message, scenario=SCENARIO, **fields):
        return EngineFailure(Finding("tokens", Kind.WRONG, message), scenario, 2, **{"is_repeatable": True, **fields})

    other = EngineScenario((SHORT,), family=None)
    one, same, large, third = failure("a"), failure("b"), failure("c", is_repeatable=None), failure("d", other)
    assert merged([one, same, third]) == [one, third]
    assert one.number == 4
    assert merged([large, failure("e", is_repeatable=None)])[0] is large
    assert len(merged([large, failure("e", is_repeatable=None)])) == 2


def test_failure_that_only_a_warm_engine_shows_on_less_is_made_small_in_fresh_ones(failures_of, scripted_engine):
    """Attempts in one engine that was still warm from others led nowhere, and nothing was made small."""

    class Warming(scripted_engine):  # type: ignore[valid-type, misc]
        is_warm = False

        def open(self, folder, knobs):
            super().open(folder, knobs)
            self.is_warm = False

        def run(self, requests):
            run = super().run(requests)
            is_bad = self.is_warm or any(9 in request.prompt_token_ids for request in requests)
            self.is_warm = self.is_warm or is_bad
            return without_last(run) if is_bad else run

    failure = failures_of(lambda _, run: run, "form", engine_type=Warming)
    assert failure.is_repeatable
    (request,) = failure.scenario.requests
    assert request.prompt_token_ids == (9,)


def test_saved_scenario_is_judged_in_a_fresh_engine_as_its_check_judges(
    scripted_engine, scripted_referee, scripted_folder
):
    engine = scripted_engine(spoil=lambda _requests, run: without_last(run))
    session = EngineSession(
        engine, engine.declare(), folder=scripted_folder, open_referee=lambda _folder, _dtype: scripted_referee()
    )
    for check, judged in (("form", "form"), ("refusals", "refusals")):
        findings = Findings()
        judge_again(session, replace(SCENARIO, check=check), findings)
        assert findings.num_seen[judged]

"""What an engine tells is held to what its requests have; whatever it tells besides, or not, is seen."""

from dataclasses import replace

import pytest

from oracle.engine_spec import EngineSpec
from oracle.errors import CheckFailed, OutcomeMismatch
from oracle.faults import FAULTS
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import requests_of, symbolic_core
from oracle.symbolic_check import run_symbolic
from oracle.told import ToldRequests
from refinfer.engine.engine import LLMEngine

pytestmark = pytest.mark.without_shape_checks

PROMPT = RequestSpec((1, 2, 3, 0, 1), 5, ignore_eos=True)
LONG_PROMPTS = Scenario((PROMPT, PROMPT), checkpoint=None, is_symbolic=True, engine=EngineSpec(2))


def told(scenario=LONG_PROMPTS):
    """An engine that has all requests of a scenario."""
    own = ToldRequests(symbolic_core(scenario, "paged"))
    for request in requests_of(scenario):
        own.add(request)
    return own


def run(own, num_steps):
    return [row.token_ids for _ in range(num_steps) for row in own.step()]


def test_request_is_told_of_from_its_first_token_to_its_end():
    assert [len(token_ids) for token_ids in run(told(), 3)] == [0, 0, 1, 0]
    run_symbolic(LONG_PROMPTS, "paged")


def test_part_of_a_prompt_that_is_told_is_seen():
    with (
        FAULTS["part_of_prompt_told"].planted(),
        pytest.raises(OutcomeMismatch, match=r"gave a token to requests \[\], and the engine told of \['0'\]"),
    ):
        told().step()


def test_token_that_is_told_of_twice_or_never_is_seen(monkeypatch):
    step = LLMEngine.step
    for change in (lambda outputs: outputs * 2, lambda outputs: outputs[:0]):
        with monkeypatch.context() as context:
            context.setattr(LLMEngine, "step", lambda self, change=change: change(step(self)))
            with pytest.raises(OutcomeMismatch, match="and the engine told of"):
                run(told(), 3)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda output: replace(output, outputs=[replace(output.outputs[0], token_ids=[1])]), "other tokens than it"),
        (lambda output: replace(output, finished=True), "as ended, or not"),
        (lambda output: replace(output, outputs=[replace(output.outputs[0], finish_reason="stop")]), "other ends than"),
        (lambda output: replace(output, outputs=[replace(output.outputs[0], text="xyz")]), "text that goes on from"),
        (lambda output: replace(output, num_cached_tokens=3), "another number of cached tokens than before"),
    ],
)
def test_what_is_told_wrongly_is_seen(change, finding, monkeypatch):
    own, tell = told(), LLMEngine._output
    run(own, 3)
    monkeypatch.setattr(LLMEngine, "_output", lambda self, request_id: change(tell(self, request_id)))
    with pytest.raises(OutcomeMismatch, match=f"told of request 0 .*{finding}"):
        run(own, 3)


def test_abort_that_leaves_a_sample_running_is_seen():
    spec = replace(PROMPT, abort_step=3, sampling=SamplingSpec(n=2))
    scenario = replace(LONG_PROMPTS, requests=(spec,))
    run_symbolic(scenario, "paged")
    with (
        FAULTS["abort_reaches_the_first_sample_only"].planted(),
        pytest.raises(CheckFailed, match=r"request 0 was aborted, and its samples \[1\] go on"),
    ):
        run_symbolic(scenario, "paged")

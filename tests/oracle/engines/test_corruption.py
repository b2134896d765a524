from dataclasses import replace

import pytest

from oracle.contract.drawing import Limits
from oracle.contract.findings import Findings
from oracle.contract.judging import CHECKS
from oracle.contract.refusal_check import check_refusals
from oracle.engines.adapter import EngineAdapter
from oracle.engines.adapters.refinfer_engine import RefinferAdapter
from oracle.engines.corruption import CORRUPTIONS, CorruptedEngine
from oracle.engines.misbehaving import EchoEngine
from oracle.engines.serve import load_adapter
from oracle.errors import EngineUnavailable

pytestmark = pytest.mark.without_shape_checks

IN_THIS_PROCESS = [name for name, corruption in CORRUPTIONS.items() if corruption.target is None]


class RememberingEngine:
    """An engine that runs the same requests once only; what it is asked twice it remembers."""

    def __init__(self, engine):
        self._engine = engine
        self._run_by_requests = {}
        self.declare, self.close = engine.declare, engine.close

    def open(self, folder, knobs):
        if not self._run_by_requests:
            self._engine.open(folder, knobs)

    def run(self, requests):
        key = repr(requests)
        if key not in self._run_by_requests:
            self._run_by_requests[key] = self._engine.run(requests)
        return self._run_by_requests[key]


@pytest.fixture(scope="module")
def engine():
    return RememberingEngine(RefinferAdapter("continuous"))


@pytest.fixture(scope="module")
def requests(request_of):
    """Requests that ask for every score, one for each kind of end; one is aborted, one is drawn twice."""
    scores = {"logprobs": 2, "logits": True, "prompt_logprobs": 1, "ignore_eos": True}
    return [
        request_of("r0", **scores),
        request_of("r1", (60, 61, 62), 4, logit_bias=[[9, 100.0]], **scores),
        request_of("r2", (30, 31), 12, temperature=1.5, seed=5, n=2, ignore_eos=True),
        request_of("r3", (40, 41), 4, abort_after=1),
    ]


def test_engine_passes_uncorrupted(wrong_checks, engine, requests):
    assert wrong_checks(engine, *requests) == set()


@pytest.mark.parametrize("name", sorted(set(IN_THIS_PROCESS) - {"illegal_taken", "last_bit_in_company"}))
def test_corruption_is_caught_by_its_check(wrong_checks, engine, requests, name):
    assert CORRUPTIONS[name].check in wrong_checks(CorruptedEngine(engine, name), *requests)


def test_corruption_in_company_is_caught_where_nobody_is_aborted(wrong_checks, engine, requests):
    company = [replace(request, abort_after=None) for request in requests]
    corrupted = CorruptedEngine(engine, "last_bit_in_company")
    assert "alone" in wrong_checks(corrupted, *company)
    assert wrong_checks(corrupted, requests[0]) == set()


def test_corruption_of_refusals_is_caught_by_refusals(engine, folder):
    limits = Limits(vocab_size=71, max_model_len=64)
    engine.open(str(folder), {})
    corrupted = CorruptedEngine(engine, "illegal_taken")
    assert check_refusals(engine, engine.declare(), limits, Findings()) == []
    assert check_refusals(corrupted, engine.declare(), limits, Findings())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruption_says_in_a_sentence_what_it_does_and_which_check_must_fail(name):
    corruption = CORRUPTIONS[name]
    assert corruption.does.endswith(".")
    assert corruption.check in CHECKS
    assert corruption.target is None or isinstance(load_adapter(corruption.target), EngineAdapter)


def test_corrupted_engine_is_an_adapter_that_passes_the_rest_on(request_of):
    engine = CorruptedEngine(EchoEngine(), "output_missing")
    assert isinstance(engine, EngineAdapter)
    assert engine.declare().name == "echo-output_missing"
    engine.open("nowhere", {})
    assert len(engine.run([request_of("r0"), request_of("r1")]).outputs) == 1
    engine.close()


def test_corrupted_engine_counts_runs_from_its_opening(request_of):
    engine = CorruptedEngine(EchoEngine(), "last_bit_next_time")
    numbers = []
    engine._adapter = EchoEngine(lambda adapter, requests, _: adapter.run(requests))
    for _ in range(2):
        engine.open("nowhere", {})
        numbers += [engine._num_runs, engine.run([request_of()]) and engine._num_runs]
    assert numbers == [0, 1, 0, 1]


def test_corrupted_engine_refuses_an_unknown_corruption():
    with pytest.raises(EngineUnavailable, match="corruption 'none' is unknown; known are token_changed"):
        CorruptedEngine(EchoEngine(), "none")

import math

import pytest

from oracle.engines import spoiled_scores
from oracle.engines.messages import EngineOutput, EngineRun, EngineSample
from oracle.engines.misbehaving import EchoEngine

LAST_BIT = math.nextafter(-2.0, -math.inf)


@pytest.fixture
def engine():
    """Gives the same two tokens and all scores to every request."""
    sample = EngineSample(
        (3, 4), "length", None, (-1.0, -2.0), ({3: -1.0, 5: -1.5}, {4: -2.0}), ((0.0, 1.0), (2.0, 3.0))
    )

    def answer(_adapter, requests, _number):
        return EngineRun(
            tuple(EngineOutput(request.request_id, (sample,), (None, {2: -3.0, 1: -4.0})) for request in requests)
        )

    return EchoEngine(answer)


def logprobs_of(name, engine, requests, num_runs=0):
    run = getattr(spoiled_scores, name)(engine, requests, num_runs)
    return [output.samples[0].logprobs for output in run.outputs]


@pytest.mark.parametrize(
    ("name", "logprobs"),
    [("score_changed", (-1.0, -2.01)), ("score_missing", (-1.0,)), ("score_positive", (-1.0, 0.5))],
)
def test_score_of_one_answer_is_spoiled(engine, request_of, name, logprobs):
    assert logprobs_of(name, engine, [request_of("r0"), request_of("r1")]) == [logprobs, (-1.0, -2.0)]


def test_score_nan_is_no_number(engine, request_of):
    assert math.isnan(logprobs_of("score_nan", engine, [request_of()])[0][-1])


def test_top_score_changed_changes_the_first_listed(engine, request_of):
    sample = spoiled_scores.top_score_changed(engine, [request_of()], 0).outputs[0].samples[0]
    assert sample.top_logprobs == ({3: -1.01, 5: -1.5}, {4: -2.0})
    assert sample.logprobs == (-1.0, -2.0)


def test_logit_changed_changes_one_of_the_last_row(engine, request_of):
    sample = spoiled_scores.logit_changed(engine, [request_of()], 0).outputs[0].samples[0]
    assert sample.logits == ((0.0, 1.0), (2.0, 3.01))


def test_prompt_score_changed_changes_the_last_token_of_the_first_prompt(engine, request_of):
    run = spoiled_scores.prompt_score_changed(engine, [request_of("r0"), request_of("r1")], 0)
    assert [output.prompt_logprobs for output in run.outputs] == [
        (None, {2: -3.01, 1: -4.01}),
        (None, {2: -3.0, 1: -4.0}),
    ]


@pytest.mark.parametrize(
    ("name", "asked", "num_runs", "is_spoiled"),
    [
        ("last_bit_in_company", [{}, {}], 0, True),
        ("last_bit_in_company", [{}], 0, False),
        ("last_bit_in_reverse", [{}, {}], 0, False),
        ("last_bit_next_time", [{}], 1, True),
        ("last_bit_next_time", [{}], 2, False),
        ("last_bit_beside_aborts", [{}, {"abort_after": 1}], 0, True),
        ("last_bit_beside_aborts", [{}, {}], 0, False),
    ],
)
def test_last_bit_is_spoiled_in_its_company_only(engine, request_of, name, asked, num_runs, is_spoiled):
    requests = [request_of(f"r{number}", **values) for number, values in enumerate(asked)]
    found = logprobs_of(name, engine, requests, num_runs)
    assert found[0] == (-1.0, LAST_BIT if is_spoiled else -2.0)


def test_last_bit_in_reverse_is_spoiled_where_names_do_not_ascend(engine, request_of):
    found = logprobs_of("last_bit_in_reverse", engine, [request_of("r1"), request_of("r0")])
    assert found == [(-1.0, LAST_BIT), (-1.0, -2.0)]


@pytest.mark.parametrize(
    "name", ["score_changed", "top_score_changed", "logit_changed", "prompt_score_changed", "score_missing"]
)
def test_run_without_scores_stays_as_it_is(request_of, name):
    requests = [request_of()]
    assert getattr(spoiled_scores, name)(EchoEngine(), requests, 0) == EchoEngine().run(requests)

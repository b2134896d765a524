"""Requests and outputs are the same after a trip through JSON, whatever of them is there."""

import json
import math

import pytest

from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

REQUEST = EngineRequest("r0", (1, 2), 3, {"logit_bias": [[4, 1.5]], "stop_token_ids": [7]}, 2, 1)
SAMPLE = EngineSample(
    (4, 5), "stop", 5, (-0.1, -2.5), ({4: -0.1, 3: -3.0}, {5: -2.5}), ((0.5, 1e-9, -3.0), (0.1, 0.2, 0.3))
)


def trip(data):
    """What is left of data after it was JSON."""
    return json.loads(json.dumps(data))


def test_request_is_the_same_after_a_trip():
    assert EngineRequest.from_data(trip(REQUEST.to_data())) == REQUEST


@pytest.mark.parametrize(
    "output",
    [
        EngineOutput("r0", (SAMPLE, EngineSample(())), (None, {1: -0.5})),
        EngineOutput("r0", (EngineSample((1,)),)),
        EngineOutput("r0", refused="too long"),
    ],
    ids=["all", "tokens only", "refused"],
)
def test_run_is_the_same_after_a_trip(output):
    run = EngineRun((output,), {"steps": 3})
    assert EngineRun.from_data(trip(run.to_data())) == run


def test_bits_of_a_score_survive():
    value = -0.1234567890123456789
    run = EngineRun((EngineOutput("r0", (EngineSample((1,), logprobs=(value, math.nextafter(value, 0.0))),)),))
    assert EngineRun.from_data(trip(run.to_data())).outputs[0].samples[0].logprobs == (
        value,
        math.nextafter(value, 0.0),
    )


def test_what_is_no_number_survives():
    run = EngineRun((EngineOutput("r0", (EngineSample((1,), logprobs=(math.nan, -math.inf)),)),))
    first, second = EngineRun.from_data(trip(run.to_data())).outputs[0].samples[0].logprobs or ()
    assert math.isnan(first)
    assert second == -math.inf

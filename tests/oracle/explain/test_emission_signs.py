from dataclasses import replace

import pytest

from oracle.engine_spec import EngineSpec, StepScript
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario


def sampled(**parameters):
    """One request on the symbolic model that samples in some way."""
    request = RequestSpec((1, 2, 3), max_tokens=12, ignore_eos=True, sampling=SamplingSpec(**parameters))
    return Scenario(requests=(request,), checkpoint=None, is_symbolic=True)


@pytest.mark.parametrize(
    ("fault", "parameters", "named"),
    [
        ("top_k_keeps_one_more", {"temperature": 3.0, "top_k": 2}, "top_k"),
        ("logit_bias_ignored", {"logit_bias": ((4, 9.0),)}, "logit_bias"),
        ("temperature_squared", {"temperature": 2.0}, "temperature"),
        ("draws_counted_by_the_engine", {"temperature": 2.0}, "temperature"),
    ],
)
def test_parameter_that_is_applied_wrongly_is_named(watched, fault, parameters, named):
    """Some seeds show nothing; the first that does names the parameter."""
    scenarios = [sampled(**parameters, seed=seed) for seed in range(20)]
    assert watched(scenarios[0]).signs == []
    signs = next(signs for scenario in scenarios if (signs := watched(scenario, fault=fault).signs))
    assert signs[0].suspect.component in ("logits processors", "sampler")
    assert named in signs[0].suspect.operation


def test_guess_that_stays_without_being_held_to_the_model_is_the_verifiers(watched):
    engine = EngineSpec(speculative="scripted", guesses=("wrong",), block_size=4)
    scenario = replace(sampled(), engine=engine)
    assert watched(scenario).signs == []
    assert watched(scenario, fault="every_guess_stays").signs[0].suspect.component == "verifier"


def test_sampler_that_is_told_something_else_is_not_to_blame(watched):
    """It picks the right token when it is told what is right."""
    scenario = sampled(temperature=2.0, n=2, seed=3)
    scenario = replace(scenario, script=(StepScript(), StepScript(), StepScript(recompute=(0,))))
    assert watched(scenario).signs == []
    sign = watched(scenario, fault="draws_start_anew_after_preemption").signs[0]
    assert sign.suspect.operation == "what the sampler is told of it"
    assert "refinfer/scheduler/request.py" in sign.suspect.sources

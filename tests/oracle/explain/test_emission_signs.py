from dataclasses import replace

import pytest

from oracle.engine_spec import EngineSpec
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario


def sampled(**parameters):
    """One request on the symbolic model that samples in some way."""
    request = RequestSpec((1, 2, 3), max_tokens=12, ignore_eos=True, sampling=SamplingSpec(**parameters))
    return Scenario(requests=(request,), checkpoint=None, is_symbolic=True)


@pytest.mark.parametrize(
    ("fault", "parameters", "named"),
    [
        ("top_k_keeps_one_more", {"temperature": 1.0, "top_k": 2, "seed": 1}, "top_k"),
        ("logit_bias_ignored", {"logit_bias": ((4, 9.0),)}, "logit_bias"),
        ("frequency_counts_once", {"frequency_penalty": 1.5}, "frequency_penalty"),
        ("temperature_squared", {"temperature": 2.0, "seed": 3}, "temperature"),
    ],
)
def test_parameter_that_is_applied_wrongly_is_named(watched, fault, parameters, named):
    scenario = sampled(**parameters)
    assert watched(scenario).signs == []
    sign = watched(scenario, fault=fault).signs[0]
    assert (sign.suspect.component, named in sign.suspect.operation) == ("logits processors", True)


def test_random_number_that_depends_on_others_is_told_apart_from_picking(watched):
    scenario = sampled(temperature=2.0, seed=5)
    sign = watched(scenario, fault="draws_counted_by_the_engine").signs[0]
    assert sign.suspect.component == "sampler"


def test_guess_that_stays_without_being_held_to_the_model_is_the_verifiers(watched):
    engine = EngineSpec(speculative="scripted", guesses=("wrong",), block_size=4)
    scenario = replace(sampled(), engine=engine)
    assert watched(scenario).signs == []
    assert watched(scenario, fault="every_guess_stays").signs[0].suspect.component == "verifier"

"""Sampling parameters: what is refused, and that its good neighbour is not."""

import pytest

from refinfer.errors import ConfigError, SamplingParamsError
from refinfer.sampling import SamplingParams


@pytest.mark.parametrize("temperature", [1.0, 1e-9, -1.0, float("nan"), float("inf")])
def test_sampling_params_refuse_a_temperature_that_is_not_greedy(temperature):
    with pytest.raises(SamplingParamsError, match=r"not implemented yet; pass temperature=0\.0 for greedy") as caught:
        SamplingParams(temperature=temperature)
    assert repr(temperature) in str(caught.value)
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize("temperature", [0.0, -0.0])
def test_sampling_params_take_the_greedy_temperature(temperature):
    assert SamplingParams(temperature=temperature).temperature == 0.0


@pytest.mark.parametrize("max_tokens", [0, -1, True, False])
def test_sampling_params_refuse_max_tokens_below_one(max_tokens):
    with pytest.raises(SamplingParamsError, match="whole number of at least 1, or None") as caught:
        SamplingParams(max_tokens=max_tokens)
    assert repr(max_tokens) in str(caught.value)
    assert caught.value.max_tokens is max_tokens


@pytest.mark.parametrize("max_tokens", [1, 2**40, None])
def test_sampling_params_take_one_token_or_no_limit(max_tokens):
    assert SamplingParams(max_tokens=max_tokens).max_tokens == max_tokens


def test_sampling_params_stay_as_they_were_checked():
    with pytest.raises(AttributeError):
        SamplingParams().max_tokens = 0  # type: ignore[misc]  # frozen, which is what is tested

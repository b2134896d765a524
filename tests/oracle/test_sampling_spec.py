"""Sampling parameters as plain data become those of an engine, name by name."""

from dataclasses import fields

import pytest

from oracle.sampling_spec import SamplingSpec
from refinfer import SamplingParams
from refinfer.errors import SamplingParamsError


def test_defaults_are_greedy_choice():
    assert SamplingSpec().params(3, ignore_eos=True) == SamplingParams(max_tokens=3, ignore_eos=True)
    assert SamplingSpec().named == ()


def test_every_parameter_of_an_engine_has_its_place():
    names = {field.name for field in fields(SamplingSpec)} | {"max_tokens", "ignore_eos"}
    assert names == {field.name for field in fields(SamplingParams)}


def test_values_arrive():
    params = SamplingSpec(n=2, logit_bias=((3, 1.5),), stop=("a",), seed=4).params(5, ignore_eos=False)
    assert params.logit_bias is not None
    assert (params.n, dict(params.logit_bias), params.stop_strings, params.seed) == (2, {3: 1.5}, ("a",), 4)


def test_params_refuses_what_an_engine_refuses():
    with pytest.raises(SamplingParamsError):
        SamplingSpec(top_p=2.0).params(1, ignore_eos=False)

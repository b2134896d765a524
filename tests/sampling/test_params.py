"""Sampling parameters: what is refused, and that its good neighbour is not."""

import copy
import math
import pickle
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from refinfer.errors import ConfigError, SamplingParamsError
from refinfer.sampling import SamplingParams, check_vocabulary

RANGE_BY_NAME = {
    "temperature": (0.0, math.inf),
    "top_p": (5e-324, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (5e-324, math.inf),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}

LEAST_BY_NAME = {"n": 1, "max_tokens": 1, "min_tokens": 0, "logprobs": 0, "prompt_logprobs": 0, "top_k": -1, "seed": 0}

LARGEST = sys.float_info.max

OPTIONAL = {"max_tokens", "logprobs", "prompt_logprobs", "seed"}

NO_NUMBERS: list[Any] = [None, True, False, "1", "", b"1", [1], {}, 1j]

unchecked = pytest.mark.usefixtures("_without_shape_checks")


def refusal(**params):
    """The error of parameters that are refused."""
    with pytest.raises(SamplingParamsError) as caught:
        SamplingParams(**params)
    assert isinstance(caught.value, ConfigError)
    return caught.value


@unchecked
@pytest.mark.parametrize("name", RANGE_BY_NAME)
@given(value=st.floats() | st.integers() | st.sampled_from([10**400, -(10**400)]))
@example(value=0)
@example(value=1)
@example(value=2)
@example(value=-2)
@example(value=math.nextafter(2.0, 3.0))
def test_sampling_params_take_the_numbers_in_range_and_refuse_the_others(name, value):
    least, most = RANGE_BY_NAME[name]
    if least <= value <= most and -LARGEST <= value <= LARGEST:
        stored = getattr(SamplingParams(**{name: value}), name)
        assert (type(stored), stored) == (float, float(value))
    else:
        error = refusal(**{name: value})
        assert str(error).startswith(f"{name} is {value!r}; it must be a finite number")
        assert getattr(error, name) is value


@unchecked
@pytest.mark.parametrize("name", RANGE_BY_NAME)
@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_sampling_params_refuse_what_is_no_number(name, value):
    assert repr(value) in str(refusal(**{name: value}))


@unchecked
@pytest.mark.parametrize("name", LEAST_BY_NAME)
@pytest.mark.parametrize("value", [*NO_NUMBERS, 1.0, math.nan], ids=repr)
def test_sampling_params_refuse_what_counts_nothing(name, value):
    params: dict[str, Any] = {name: value}
    if value is None and name in OPTIONAL:
        assert getattr(SamplingParams(**params), name) is None
    else:
        assert str(refusal(**params)).startswith(f"{name} is {value!r}; it must be a whole number")


@pytest.mark.parametrize(("name", "least"), LEAST_BY_NAME.items())
def test_sampling_params_take_the_least_count_and_refuse_one_less(name, least):
    assert getattr(SamplingParams(**{name: least}), name) in (least, 0)
    assert getattr(refusal(**{name: least - 1}), name) == least - 1


def test_sampling_params_take_64_bits_of_seed_and_refuse_more():
    assert SamplingParams(seed=2**64 - 1).seed == 2**64 - 1
    assert "from 0 to 2**64 - 1, or None for a fresh one" in str(refusal(seed=2**64))


@pytest.mark.parametrize("max_tokens", [0, -1, True, False])
def test_sampling_params_refuse_max_tokens_below_one(max_tokens):
    error = refusal(max_tokens=max_tokens)
    assert f"{max_tokens!r}; it must be a whole number of at least 1, or None" in str(error)
    assert error.max_tokens is max_tokens


@pytest.mark.parametrize("max_tokens", [1, 2**40, None])
def test_sampling_params_take_one_token_or_no_limit(max_tokens):
    assert SamplingParams(max_tokens=max_tokens).max_tokens == max_tokens


@unchecked
@pytest.mark.parametrize("ignore_eos", ["false", 0, 1, None])
def test_sampling_params_refuse_an_ignore_eos_that_is_neither_true_nor_false(ignore_eos):
    assert f"ignore_eos is {ignore_eos!r}; it must be True or False" in str(refusal(ignore_eos=ignore_eos))


def test_sampling_params_refuse_more_min_tokens_than_max_tokens():
    error = refusal(min_tokens=4, max_tokens=3)
    assert str(error) == "min_tokens is 4, more than max_tokens, which is 3; lower it"
    assert SamplingParams(min_tokens=3, max_tokens=3).min_tokens == 3
    assert SamplingParams(min_tokens=99, max_tokens=None).min_tokens == 99
    assert refusal(min_tokens=17).max_tokens == 16


@unchecked
@pytest.mark.parametrize("stop", ["", [""], ["a", ""], [1], [None], b"ab", 5, {"a"}, [b"a"], True], ids=repr)
def test_sampling_params_refuse_stop_strings_that_are_empty_or_no_strings(stop):
    assert f"stop is {stop!r}; it must be a string or a list of strings" in str(refusal(stop=stop))


@pytest.mark.parametrize(
    ("stop", "stored"), [(None, ()), ([], ()), ("ab", ("ab",)), (["b", "a"], ("b", "a")), (("a",), ("a",))]
)
def test_sampling_params_keep_stop_strings_as_a_tuple(stop, stored):
    params = SamplingParams(stop=stop)
    assert params.stop == params.stop_strings == stored


@unchecked
@pytest.mark.parametrize("stop_token_ids", [[-1], [1, True], ["1"], [1.0], 5, "12", b"12", {1}, [None]], ids=repr)
def test_sampling_params_refuse_stop_tokens_that_are_no_ids(stop_token_ids):
    assert "whole numbers of at least 0" in str(refusal(stop_token_ids=stop_token_ids))


def test_sampling_params_keep_stop_tokens_as_a_tuple():
    params = SamplingParams(stop_token_ids=[4, 0, 4])
    assert params.stop_token_ids == (4, 0, 4)
    assert params.stop_token_id_set == {0, 4}
    assert SamplingParams().stop_token_ids == ()
    assert SamplingParams().stop_token_id_set == set()


@unchecked
@pytest.mark.parametrize(
    "logit_bias",
    [{-1: 1.0}, {True: 1.0}, {"1": 1.0}, {1: math.nan}, {1: -math.inf}, {1: "1"}, {1: True}, [(1, 1.0)], 5],
    ids=repr,
)
def test_sampling_params_refuse_a_bias_that_is_none(logit_bias):
    assert str(refusal(logit_bias=logit_bias)).startswith("logit_bias is ")


def test_sampling_params_keep_their_bias_whatever_becomes_of_the_dict():
    given_bias = {3: 1.5, 1: -2.0}
    params = SamplingParams(logit_bias=given_bias)
    given_bias[3] = 0.0
    assert params.logit_bias == {1: -2.0, 3: 1.5}


def test_equal_meanings_compare_and_hash_equal():
    pairs = [
        (SamplingParams(logit_bias={1: 1.0, 2: 2.0}), SamplingParams(logit_bias={2: 2.0, 1: 1.0})),
        (SamplingParams(logit_bias={}), SamplingParams()),
        (SamplingParams(top_k=-1), SamplingParams(top_k=0)),
        (SamplingParams(stop="a"), SamplingParams(stop=["a"])),
        (SamplingParams(stop_token_ids=[]), SamplingParams()),
        (SamplingParams(temperature=-0.0), SamplingParams(temperature=0.0)),
    ]
    for one, other in pairs:
        assert (one, hash(one)) == (other, hash(other))


@pytest.mark.parametrize("change", [{"logit_bias": {1: 2.0}}, {"stop": "b"}, {"seed": 1}, {"top_k": 1}], ids=str)
def test_different_meanings_compare_different(change):
    params = SamplingParams(logit_bias={1: 1.0}, stop="a", seed=0)
    assert replace(params, **change) != params


def test_sampling_params_survive_copies_and_processes():
    params = SamplingParams(logit_bias={1: 1.0}, stop=["a"], stop_token_ids=[3], seed=2**64 - 1)
    assert params.changes_logits
    for twin in (copy.deepcopy(params), pickle.loads(pickle.dumps(params)), replace(params)):  # noqa: S301 (our own)
        assert (twin, hash(twin)) == (params, hash(params))


def test_sampling_params_stay_as_they_were_checked():
    with pytest.raises(AttributeError):
        SamplingParams().max_tokens = 0  # type: ignore[misc]  # frozen, which is what is tested


@pytest.mark.parametrize(
    ("params", "is_greedy", "changes_logits"),
    [
        ({}, True, False),
        ({"top_k": 3, "top_p": 0.5, "min_p": 0.5, "logprobs": 2, "stop": "a", "stop_token_ids": [1]}, True, False),
        ({"temperature": 5e-324}, False, False),
        ({"logit_bias": {1: 1.0}}, True, True),
        ({"repetition_penalty": 1.1}, True, True),
        ({"presence_penalty": -0.1}, True, True),
        ({"frequency_penalty": 0.1}, True, True),
        ({"min_tokens": 1}, True, True),
        ({"temperature": 1.0, "min_tokens": 1}, False, True),
    ],
    ids=str,
)
def test_sampling_params_tell_which_steps_they_need(params, is_greedy, changes_logits):
    built = SamplingParams(**params)
    assert (built.is_greedy, built.changes_logits) == (is_greedy, changes_logits)
    assert built.is_plain_greedy == (is_greedy and not changes_logits)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("stop_token_ids", SamplingParams(stop_token_ids=[0, 16])),
        ("logit_bias", SamplingParams(logit_bias={0: 1.0, 16: 1.0})),
    ],
)
def test_check_vocabulary_refuses_an_id_without_a_logit(name, params):
    with pytest.raises(SamplingParamsError, match=f"{name} holds 16, but the token ids of this model end at 15"):
        check_vocabulary(params, 16)
    check_vocabulary(params, 17)


def test_check_vocabulary_refuses_min_tokens_that_mask_every_token():
    params = SamplingParams(min_tokens=1, stop_token_ids=[0, 1])
    with pytest.raises(SamplingParamsError, match="every one of the 3 tokens of this model ends the request"):
        check_vocabulary(params, 3, frozenset({2, 99}))
    check_vocabulary(params, 3)
    check_vocabulary(replace(params, min_tokens=0), 3, frozenset({2}))


@pytest.mark.usefixtures("_without_shape_checks")
def test_params_of_numpy_and_torch_are_kept_as_python_numbers():
    values: dict[str, Any] = {
        "temperature": np.float32(0.5),
        "max_tokens": np.int64(3),
        "n": torch.tensor(2),
        "top_k": np.int32(4),
        "top_p": np.float64(0.5),
        "logprobs": np.int8(1),
        "seed": np.uint64(7),
        "min_tokens": np.int16(1),
        "ignore_eos": np.bool_(1),
        "stop_token_ids": np.array([5, 6]),
        "stop": np.array(["a"]),
        "logit_bias": {np.int64(5): np.float32(0.5), 6: torch.tensor(1.5)},
    }
    params = SamplingParams(**values)
    plain = SamplingParams(
        temperature=0.5,
        max_tokens=3,
        n=2,
        top_k=4,
        top_p=0.5,
        logprobs=1,
        seed=7,
        min_tokens=1,
        ignore_eos=True,
        stop_token_ids=[5, 6],
        stop=["a"],
        logit_bias={5: 0.5, 6: 1.5},
    )
    assert params == plain
    assert repr(params) == repr(plain), "a NumPy number would show itself"
    mixed: Any = [np.int64(5), torch.tensor(6)]
    assert SamplingParams(stop_token_ids=mixed).stop_token_ids == (5, 6)


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", np.float32(3)),
        ("max_tokens", np.bool_(1)),
        ("max_tokens", np.array([3])),
        ("temperature", np.float32("nan")),
        ("ignore_eos", np.int64(1)),
        ("stop_token_ids", np.array([1.5])),
        ("seed", np.int64(-1)),
    ],
)
def test_params_of_numpy_are_refused_like_python_numbers(name, value):
    with pytest.raises(SamplingParamsError, match=name):
        SamplingParams(**{name: value})

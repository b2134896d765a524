"""The forms in which parameters are kept; what is refused stands in `test_params.py`."""

import math

import pytest

from refinfer.errors import SamplingParamsError
from refinfer.sampling.parameter_checks import (
    LogitBias,
    check_seed,
    check_top_k,
    frozen_bias,
    listed_stop_strings,
    number_within,
    whole_token_ids,
)


def test_logit_bias_cannot_be_changed():
    bias = LogitBias({1: 2.0})
    with pytest.raises(TypeError):
        bias[1] = 3.0  # type: ignore[index]  # which is what is tested
    assert (len(bias), list(bias), bias[1], repr(bias)) == (1, [1], 2.0, "{1: 2.0}")


def test_logit_bias_stays_whatever_becomes_of_the_dict():
    source = {1: 2.0}
    bias = LogitBias(source)
    source[1] = 3.0
    assert bias[1] == 2.0


def test_logit_bias_hashes_by_what_it_holds():
    assert len({LogitBias({1: 2.0, 3: 4.0}), LogitBias({3: 4.0, 1: 2.0}), LogitBias({1: 2.0})}) == 2
    assert len({hash(LogitBias({1: bias / 2})) for bias in range(100)}) > 90


def test_whole_numbers_are_kept_as_floats():
    stored = number_within("temperature", 1, "a number")
    assert (type(stored), stored) == (float, 1.0)
    assert repr(frozen_bias({3: 2})) == "{3: 2.0}"


def test_number_too_large_for_a_float_is_refused():
    with pytest.raises(SamplingParamsError, match="it must be small"):
        number_within("temperature", 10**400, "small")


def test_bias_that_is_not_finite_is_refused_with_the_limit():
    with pytest.raises(SamplingParamsError, match=r"^logit_bias is -inf; it must be finite for every token id$"):
        frozen_bias({3: 1.0, 4: -math.inf})


def test_lists_are_kept_in_their_order():
    assert listed_stop_strings(["b", "a"]) == ("b", "a")
    assert whole_token_ids("stop_token_ids", range(3)) == (0, 1, 2)


def test_edges_of_ranges_pass():
    check_seed(2**64 - 1)
    check_top_k(-1)

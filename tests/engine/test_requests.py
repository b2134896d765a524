"""Requests are checked before anything runs."""

import numpy as np
import pytest

from refinfer import SamplingParams
from refinfer.engine.requests import RequestMaker
from refinfer.errors import SamplingParamsError, TokenIdError


@pytest.fixture
def maker(make_llm):
    return RequestMaker(make_llm(cache="none").engine.loaded, 64)


def test_request_keeps_what_was_asked(maker):
    params = SamplingParams(seed=7, temperature=1.0)
    request = maker.make("a", "the wing", params, name="prompt 0", cache_salt="mine")
    assert (request.request_id, request.prompt, request.seed, request.cache_salt) == ("a", "the wing", 7, "mine")
    assert list(request.prompt_token_ids) == maker.require_tokenizer().encode("the wing")


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize("token_id", [1.0, "1", None], ids=repr)
def test_maker_refuses_what_is_no_whole_number(maker, token_id):
    with pytest.raises(TokenIdError, match=r"prompt 0 has token id .*; token ids are whole numbers"):
        maker.make("a", [5, token_id], SamplingParams(), name="prompt 0")


@pytest.mark.usefixtures("_without_shape_checks")
def test_maker_takes_whole_numbers_of_other_kinds(maker):
    request = maker.make("a", list(np.array([5, 6])), SamplingParams(), name="prompt 0")
    assert request.prompt_token_ids == (5, 6)
    assert {type(token_id) for token_id in request.prompt_token_ids} == {int}


def test_maker_refuses_parameters_that_do_not_fit_the_vocabulary(maker):
    with pytest.raises(SamplingParamsError, match="stop_token_ids holds 320"):
        maker.make("a", [5], SamplingParams(stop_token_ids=[320]), name="prompt 0")

"""Prompts as people have them, one meaning each; nonsense is refused by name."""

import re
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer import EngineConfig, LLMEngine, SamplingParams
from refinfer.engine.inputs import list_params, list_prompts, read_prompt
from refinfer.errors import ConfigError, RefinferError, RequestError, SamplingParamsError, TokenIdError

pytestmark = pytest.mark.usefixtures("_without_shape_checks")

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)
FORMS_OF_ONE: dict[str, Callable[..., Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda ids: (token_id for token_id in ids),
    "iterator": iter,
    "deque": deque,
    "array": np.array,
    "array of small integers": lambda ids: np.array(ids, dtype=np.uint32),
    "array of objects": lambda ids: np.array(ids, dtype=object),
    "list of NumPy integers": lambda ids: [np.int64(token_id) for token_id in ids],
    "list of tensors": lambda ids: [torch.tensor(token_id) for token_id in ids],
    "tensor": torch.tensor,
    "mapping": lambda ids: {"prompt_token_ids": ids},
    "mapping of an array": lambda ids: {"prompt_token_ids": np.array(ids)},
    "mapping of a generator": lambda ids: {"prompt_token_ids": (token_id for token_id in ids)},
}
FORMS_OF_MANY: dict[str, Callable[..., Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda prompts: (prompt for prompt in prompts),
    "deque": deque,
}


def read_all(prompts):
    return [read_prompt(prompt, "prompt") for prompt in list_prompts(prompts)]


@settings(deadline=None)
@given(ids=IDS, form=st.sampled_from(sorted(FORMS_OF_ONE)))
def test_one_prompt_means_the_same_in_every_form(ids, form):
    for prompts in (FORMS_OF_ONE[form](ids), [FORMS_OF_ONE[form](ids)]):
        (given_ids,) = read_all(prompts)
        assert given_ids == ids
        assert {type(token_id) for token_id in given_ids} == {int}


@settings(deadline=None)
@given(
    several=st.lists(st.tuples(IDS, st.sampled_from(sorted(FORMS_OF_ONE))) | st.text(max_size=4), min_size=1),
    form=st.sampled_from(sorted(FORMS_OF_MANY)),
)
def test_several_prompts_mean_the_same_in_every_form(several, form):
    prompts = [own if isinstance(own, str) else FORMS_OF_ONE[own[1]](own[0]) for own in several]
    expected = [own if isinstance(own, str) else own[0] for own in several]
    assert read_all(FORMS_OF_MANY[form](prompts)) == expected


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_each_row_of_a_matrix_is_a_prompt(make):
    assert read_all(make([[3, 4], [5, 6]])) == [[3, 4], [5, 6]]
    assert read_all(make([[3, 4]])) == [[3, 4]]


def test_texts_come_in_mappings_and_arrays_too():
    assert read_all({"prompt": "a"}) == ["a"]
    assert read_all([{"prompt": "a"}, "b", {"prompt_token_ids": (1, 2)}]) == ["a", "b", [1, 2]]
    assert read_all(np.array(["a", "b"])) == ["a", "b"]
    assert read_all([]) == read_all(np.array([])) == []


NO_PROMPTS = [
    b"abc", bytearray(b"abc"), memoryview(b"abc"), None, True, 3, 1.5, np.int64(3), torch.tensor(3), object(), {3, 4},
    {}, {"prompt": [3]}, {"prompt": b"a"}, {"prompt_token_ids": "ab"}, {"prompt_token_ids": None}, {"text": "a"},
    {"prompt": "a", "prompt_token_ids": [3]}, {"prompt": "a", "multi_modal_data": {}}, {"prompt": {"prompt": "a"}},
]  # fmt: skip
NO_IDS = [
    [True, False], [3, True], [1.5], [3, "a"], [3, None], [3, b"a"], [3, [4]], [3, (4,)], [3, np.array([4])],
    np.array([1.5]), np.array([True]), torch.tensor([1.0]), torch.tensor([True]), [np.float64(3)], [np.bool_(1)],
    [3, {"prompt_token_ids": [4]}], np.zeros((1, 1, 1), dtype=int), {"prompt_token_ids": [[3]]},
]  # fmt: skip


@pytest.mark.parametrize("prompt", NO_PROMPTS, ids=lambda prompt: repr(prompt).partition(" at 0x")[0])
def test_what_is_no_prompt_is_refused_by_its_index(make_llm, prompt):
    llm = make_llm(cache="none")
    for prompts in ([[5], prompt], ["a", prompt]):
        with pytest.raises(RequestError, match=r"^prompt 1 is .*; give .*(a text|a list of ids)"):
            llm.generate(prompts)
    with pytest.raises(RequestError, match=r"^prompt 0 is "):
        llm.generate(prompt)
    with pytest.raises(RequestError, match=r"^request 'x' is "):
        llm.engine.add_request("x", prompt)


@pytest.mark.parametrize("prompt", NO_IDS, ids=repr)
def test_what_is_no_token_id_is_refused_by_its_index(make_llm, prompt):
    llm = make_llm(cache="none")
    with pytest.raises(TokenIdError, match=r"^prompt 0 has .*; (token ids are whole numbers|give the ids of one)"):
        llm.generate(prompt)
    with pytest.raises(TokenIdError, match=r"^request 'x' has "):
        llm.engine.add_request("x", prompt)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 400) | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
    | st.builds(np.array, st.lists(st.integers(0, 9))) | st.builds(object),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.builds(iter, st.lists(inner, max_size=3))
    | st.dictionaries(st.sampled_from(["prompt", "prompt_token_ids", "role", "content", "x"]), inner, max_size=2),
)  # fmt: skip


@settings(deadline=None)
@given(prompts=ANYTHING, method=st.sampled_from(["make_requests", "chat"]))
def test_anything_at_all_is_taken_or_refused_by_name(make_llm, prompts, method):
    """What is taken is only checked here, or ends after one token."""
    params = SamplingParams(max_tokens=1)
    try:
        getattr(make_llm(cache="none"), method)(prompts, params)
    except RefinferError as error:
        assert str(error)  # noqa: PT017


def test_engine_takes_what_llm_takes(make_llm):
    engine = LLMEngine(make_llm(cache="none").engine.loaded, EngineConfig(cache="none"))
    engine.add_request("a", np.array([3, 4]))
    engine.add_request("b", {"prompt": "a"})
    outputs = {output.request_id: output for output in engine.step()}
    assert outputs["a"].prompt_token_ids == [3, 4]
    assert outputs["b"].prompt == "a"


def test_params_come_as_one_or_one_for_each():
    one, other = SamplingParams(), SamplingParams(max_tokens=3)
    assert list_params(None, 2) == list_params(one, 2) == [one, one]
    for several in ([one, other], (one, other), iter([one, other])):
        assert list_params(several, 2) == [one, other]
    for params in ({"max_tokens": 3}, [one, {"max_tokens": 3}], 3, "greedy", [None, one]):
        with pytest.raises(RequestError, match=r"params has .*; give SamplingParams"):
            list_params(params, 2)


@pytest.mark.parametrize(
    ("method", "argument", "question"),
    [
        ("generate", "max_token", "did you mean params=SamplingParams(max_tokens=…)? it takes prompts, params"),
        ("generate", "max_tokens", "did you mean params=SamplingParams(max_tokens=…)?"),
        ("stream", "sampling_params", "did you mean params? it takes"),
        ("chat", "message", "did you mean messages? it takes messages, params"),
        ("generate", "xyzzy", "xyzzy=3; it takes"),
    ],
)
def test_an_unknown_argument_is_answered_with_the_nearest(make_llm, method, argument, question):
    with pytest.raises(RequestError, match=re.escape(question)) as caught:
        getattr(make_llm(cache="none"), method)([{"role": "user", "content": "a"}], **{argument: 3})
    assert caught.value.argument == argument


def test_add_request_refuses_an_unknown_argument(make_llm):
    with pytest.raises(RequestError, match="add_request has no argument salt='x'; did you mean cache_salt"):
        make_llm(cache="none").engine.add_request("a", [3], salt="x")


def test_unknown_settings_are_answered_with_the_nearest():
    with pytest.raises(SamplingParamsError, match="max_token=3 is no sampling parameter; did you mean max_tokens"):
        SamplingParams(max_token=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="option max_len=3 is unknown; did you mean max_model_len"):
        EngineConfig(max_len=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("messages", ["text", ["text"], [["text"]], None, 3, b"text", {"role": "user"}, [[None]]])
def test_chat_refuses_what_is_no_conversation(make_llm, messages):
    with pytest.raises(RequestError, match=r"messages are .*; give a list of at least one"):
        make_llm(cache="none").chat(messages)


def test_chat_takes_generators(make_llm):
    llm, message = make_llm(cache="none"), {"role": "user", "content": "a"}
    expected = llm.chat([message])[0].prompt_token_ids
    assert llm.chat(iter([message]))[0].prompt_token_ids == expected
    assert [output.prompt_token_ids for output in llm.chat(iter([iter([message]), (message,)]))] == [expected] * 2

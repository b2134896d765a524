"""Answers are read wherever servers put ids and scores, and what cannot be read is never made up."""

import pytest

from oracle.engines.adapters.openai_answers import find_ids, join_events, read_output
from oracle.engines.adapters.openai_dialect import Dialect
from oracle.engines.adapters.openai_http import ServerFailed
from oracle.engines.messages import EngineRequest, EngineSample

DIALECT = Dialect("toy", logprobs="count")
TEXT = Dialect("toy", gives_ids=False)


def read(*choices, dialect=DIALECT, **parameters):
    return read_output(EngineRequest("a", (5,), 4, parameters), {"choices": list(choices)}, dialect)


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": [7, 8]},
        {"tokens": [7, 8]},
        {"logprobs": {"token_ids": [7, 8]}},
        {"logprobs": {"tokens": ["token_id:7", "token_id:8"]}},
        {"logprobs": {"content": [{"id": 7}, {"id": 8}]}},
    ],
    ids=["token_ids", "tokens", "logprobs.token_ids", "logprobs.tokens", "logprobs.content"],
)
def test_ids_are_found_wherever_they_stand(choice):
    assert find_ids({"text": "ab", **choice}) == (7, 8)


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"logprobs": None},
        {"logprobs": {"tokens": ["a", "b"]}},
        {"logprobs": {"tokens": ["token_id:7", "b"]}},
        {"logprobs": {"tokens": ["token_id:x"]}},
        {"logprobs": {"content": [{"token": "a"}]}},
        {"tokens": [True]},
    ],
)
def test_ids_are_not_made_up(choice):
    assert find_ids({"text": "ab", **choice}) is None


@pytest.mark.parametrize("choice", [{"text": ""}, {"text": "", "logprobs": None}, {"text": "ab", "token_ids": []}])
def test_an_answer_may_be_empty(choice):
    assert find_ids(choice) == ()


def test_output_has_every_answer_in_order():
    first = {"index": 0, "token_ids": [7], "text": "a", "finish_reason": "length"}
    second = {"index": 1, "token_ids": [8], "text": "b", "finish_reason": "stop", "stop_reason": 8}
    assert read(second, first).samples == (
        EngineSample((7,), finish_reason="length"),
        EngineSample((8,), finish_reason="stop", stop_token_id=8),
    )


def test_stop_string_is_no_stop_token():
    (sample,) = read({"token_ids": [7], "text": "a", "finish_reason": "stop", "stop_reason": "a"}).samples
    assert sample.stop_token_id is None


def test_scores_are_read_as_completions_have_them():
    choice = {
        "text": "ab",
        "token_ids": [7, 8],
        "logprobs": {
            "tokens": ["token_id:7", "token_id:8"],
            "token_logprobs": [-0.5, -1],
            "top_logprobs": [{"token_id:7": -0.5, "token_id:9": -2.0}, {"token_id:8": -1}],
        },
    }
    (sample,) = read(choice, logprobs=2).samples
    assert sample.logprobs == (-0.5, -1.0)
    assert sample.top_logprobs == ({7: -0.5, 9: -2.0}, {8: -1.0})
    assert read(choice).samples[0].logprobs is None, "not asked for"


def test_scores_are_read_as_chats_have_them():
    content = [{"id": 7, "logprob": -0.5, "top_logprobs": [{"id": 9, "logprob": -0.25}]}]
    (sample,) = read({"text": "a", "logprobs": {"content": content}}, logprobs=1).samples
    assert sample == EngineSample((7,), logprobs=(-0.5,), top_logprobs=({9: -0.25},))


def test_likeliest_tokens_named_by_text_are_left_out():
    logprobs = {"token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}]}
    (sample,) = read({"text": "a", "token_ids": [7], "logprobs": logprobs}, logprobs=1).samples
    assert (sample.logprobs, sample.top_logprobs) == ((-0.5,), None)


def test_prompt_scores_are_read():
    prompt_logprobs = [None, {"7": {"logprob": -1.5, "rank": 1}}]
    output = read({"text": "a", "token_ids": [7], "prompt_logprobs": prompt_logprobs}, prompt_logprobs=1)
    assert output.prompt_logprobs == (None, {7: -1.5})


def test_text_becomes_the_code_points_of_its_characters():
    assert read({"text": "aé", "finish_reason": "stop"}, dialect=TEXT).samples == (
        EngineSample((97, 233), finish_reason="stop"),
    )


@pytest.mark.parametrize(
    "reply",
    [{}, {"choices": None}, {"choices": [{"text": "ab"}]}, {"choices": ["ab"]}],
    ids=["nothing", "none", "no ids", "no objects"],
)
def test_what_is_no_completion_is_a_failure(reply):
    with pytest.raises(ServerFailed, match="what came back for a is no completion"):
        read_output(EngineRequest("a", (5,), 4), reply, DIALECT)


def event(index=0, **piece):
    return {"choices": [{"index": index, **piece}]}


def test_stream_is_cut_where_it_is_aborted():
    taken = []

    def events():
        for token_id in range(5):
            taken.append(token_id)
            yield event(text=str(token_id), token_ids=[token_id])

    (choice,) = join_events(events(), abort_after=2)["choices"]
    assert (choice["text"], choice["token_ids"], choice["finish_reason"]) == ("01", [0, 1], "abort")
    assert taken == [0, 1]


def test_stream_that_ends_by_itself_keeps_its_reason():
    events = [event(text="a", token_ids=[1]), event(text="", finish_reason="stop", stop_reason=1)]
    (choice,) = join_events(events, abort_after=5)["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", 1)


def test_stream_of_several_answers_is_taken_apart():
    events = [event(0, text="a", token_ids=[1]), event(1, text="b", token_ids=[2]), event(0, text="c", token_ids=[3])]
    choices = join_events(events, abort_after=2)["choices"]
    assert [choice["token_ids"] for choice in choices] == [[1, 3], [2]]


def test_stream_without_ids_is_counted_by_its_pieces():
    (choice,) = join_events([event(text="a"), event(text=""), event(text="b"), event(text="c")], abort_after=2)[
        "choices"
    ]
    assert choice["text"] == "ab"


def test_stream_joins_scores():
    events = [event(text="a", logprobs={"tokens": ["token_id:7"], "token_logprobs": [-0.5]})] * 2
    (choice,) = join_events(events, abort_after=2)["choices"]
    assert choice["logprobs"] == {"tokens": ["token_id:7"] * 2, "token_logprobs": [-0.5] * 2}


def test_error_inside_a_stream_is_a_failure():
    with pytest.raises(ServerFailed, match="the engine is dead"):
        join_events([{"error": {"message": "the engine is dead"}}], abort_after=2)

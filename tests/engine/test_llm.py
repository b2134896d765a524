"""`LLM` as callers see it: forms of prompts, order of answers, refusals before anything runs, streams."""

import json
import shutil

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from refinfer import LLM, RequestOutput, SamplingParams
from refinfer.engine import core
from refinfer.engine.answer import Answer
from refinfer.errors import (
    CheckpointError,
    ConfigError,
    EmptyPromptError,
    PromptTooLongError,
    RequestError,
    TokenIdError,
)

MAX_MODEL_LEN = 64
GO_ON = SamplingParams(max_tokens=6, ignore_eos=True)


@pytest.fixture
def llm(make_llm, cache):
    return make_llm(cache=cache)


@pytest.fixture
def count_passes():
    """Counts the passes of a model while a test runs."""
    handles = []

    def start(llm):
        passes = []
        handles.append(llm.model.get_submodule("model.norm").register_forward_hook(lambda *_: passes.append(1)))
        return passes

    yield start
    for handle in handles:
        handle.remove()


def token_ids(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def answers(outputs):
    """What does not depend on the calls before: names go on, and more and more of a prompt is cached."""
    return [(output.prompt_token_ids, output.outputs, output.finished) for output in outputs]


def test_generate_takes_every_form_of_prompts(llm):
    text = "the wing"
    ids = llm.tokenizer.encode(text)
    expected = token_ids(llm.generate(text, GO_ON))
    assert len(expected) == 1
    for prompts in (ids, tuple(ids), [text], [ids], (text,), [tuple(ids)]):
        assert token_ids(llm.generate(prompts, GO_ON)) == expected
    assert token_ids(llm.generate([text, ids, [5, 9]], GO_ON))[:2] == expected * 2
    assert llm.generate([], GO_ON) == []


def test_output_says_what_was_asked(llm):
    by_text, by_ids = llm.generate(["the wing", [5, 9]], GO_ON)
    assert (by_text.prompt, by_text.prompt_token_ids) == ("the wing", llm.tokenizer.encode("the wing"))
    assert (by_ids.prompt, by_ids.prompt_token_ids) == (None, [5, 9])
    for index, output in enumerate((by_text, by_ids)):
        assert int(output.request_id) == int(by_text.request_id) + index, "names go on from call to call"
        assert output.finished
        assert (output.seed, output.prompt_logprobs) == (None, None)
        assert output.num_cached_tokens < len(output.prompt_token_ids)
        (answer,) = output.outputs
        assert (answer.index, answer.logprobs, answer.cumulative_logprob, answer.stop_reason) == (0, None, None, None)
        assert answer.text == llm.tokenizer.decode(answer.token_ids)


def test_generate_answers_in_the_order_of_the_prompts(make_llm, cache):
    """More than ten, of many lengths, in few places: they neither end in order nor sort as text."""
    prompts = [[number + 7, 3] for number in range(13)]
    params = [SamplingParams(max_tokens=13 - number, ignore_eos=True) for number in range(13)]
    outputs = make_llm(cache=cache, max_num_seqs=3).generate(prompts, params)
    assert [output.prompt_token_ids for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == list(range(13, 0, -1))


def test_generate_uses_each_prompts_own_params(llm):
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in (1, 4, 2)]
    outputs = llm.generate([[5, 9]] * 3, params)
    longest = outputs[1].outputs[0].token_ids
    assert token_ids(outputs) == [longest[:1], longest, longest[:2]]


def test_generate_gives_sixteen_tokens_unless_told_otherwise(llm):
    (output,) = llm.generate([7, 8], SamplingParams(ignore_eos=True))
    assert (len(output.outputs[0].token_ids), output.outputs[0].finish_reason) == (16, "length")
    assert token_ids(llm.generate([7, 8])) == token_ids(llm.generate([7, 8], SamplingParams()))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_generate_refuses_params_that_are_not_one_for_each(llm, count):
    with pytest.raises(RequestError, match=f"2 prompts were given with {count} sampling parameters; give one for all"):
        llm.generate([[5], [6]], [GO_ON] * count)


def test_mixed_batch_equals_singleton_outputs(make_llm, cache):
    prompts = ["the wing", [5, 9, 2, 2, 1, 6, 0], "a", [300], "日本 é"]
    params = [SamplingParams(max_tokens=count) for count in (9, 1, 5, 12, 3)]
    together = make_llm(cache=cache, max_num_seqs=3).generate(prompts, params)
    for output, prompt, own in zip(together, prompts, params, strict=True):
        (alone,) = make_llm(cache=cache).generate([prompt], own)
        assert (output.outputs, output.prompt, output.finished) == (alone.outputs, alone.prompt, alone.finished)


REFUSALS = {
    "no-token": ([[5], []], EmptyPromptError, "prompt 1 has no token; give at least one"),
    "as-long-as-the-longest": (
        [[5], [6], [5] * MAX_MODEL_LEN],
        PromptTooLongError,
        "prompt 2 has 64 tokens; max_model_len 64 leaves room for 63 and one output token",
    ),
    "text-too-long": ("é" * 200, PromptTooLongError, "prompt 0 has"),
    "past-the-vocabulary": ([[5], [320]], TokenIdError, "prompt 1 has token id 320; the vocabulary has 0 to 319"),
    "below-the-vocabulary": ([[5, -1]], TokenIdError, "prompt 0 has token id -1"),
    "no-whole-number": ([[5], [1.5]], TokenIdError, "prompt 1 has token id 1.5; token ids are whole numbers"),
    "past-any-integer": ([[2**70]], TokenIdError, f"prompt 0 has token id {2**70}"),
}


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize(("prompts", "error", "match"), REFUSALS.values(), ids=REFUSALS.keys())
@pytest.mark.parametrize("method", ["generate", "stream"])
def test_llm_refuses_a_prompt_by_its_index_before_anything_runs(llm, count_passes, method, prompts, error, match):
    passes = count_passes(llm)
    with pytest.raises(error, match=match):
        getattr(llm, method)(prompts, GO_ON)
    assert passes == []


def test_llm_takes_the_longest_prompt_and_the_outermost_ids(llm):
    outputs = llm.generate([[5] * (MAX_MODEL_LEN - 1), [0], [319]], SamplingParams(max_tokens=None, ignore_eos=True))
    assert [len(ids) for ids in token_ids(outputs)] == [1, MAX_MODEL_LEN - 1, MAX_MODEL_LEN - 1]
    assert {output.outputs[0].finish_reason for output in outputs} == {"length"}


def test_max_model_len_bounds_prompt_and_output_together(make_llm, cache):
    llm = make_llm(cache=cache, max_model_len=5)
    assert [len(ids) for ids in token_ids(llm.generate([[5, 6, 7], [5, 6, 7, 8]], GO_ON))] == [2, 1]
    with pytest.raises(PromptTooLongError, match="max_model_len 5 leaves room for 4"):
        llm.generate([5, 6, 7, 8, 9], GO_ON)


def test_eos_ends_an_answer_and_is_its_last_token(make_llm, cache, tmp_path, text_folder):
    """Whatever the model says first is made an eos id, by the file that decides."""
    answer = token_ids(make_llm(cache=cache).generate([7, 8], GO_ON))[0]
    folder = shutil.copytree(text_folder, tmp_path / "checkpoint")
    for eos, length in ((answer[0], 1), (answer[2], answer.index(answer[2]) + 1)):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [eos, 319]}))
        llm = LLM(folder, cache=cache, dtype="float64")
        assert llm.eos_token_ids == (eos, 319, 1), "the last is the tokenizer's"
        (output,) = llm.generate([7, 8], SamplingParams(max_tokens=6))
        assert output.outputs[0].token_ids == answer[:length]
        assert output.outputs[0].finish_reason == "stop"
        assert output.outputs[0].text == make_llm(cache=cache).tokenizer.decode(answer[:length])
        assert token_ids(llm.generate([7, 8], GO_ON)) == [answer]


def test_stream_tells_of_every_token_as_it_comes(make_llm, cache):
    llm = make_llm(cache=cache, max_num_seqs=2)
    prompts = ["the wing", [5, 9], "日本", [7]]
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in (3, 6, 12, 2)]
    last: dict[str, RequestOutput] = {}
    for output in llm.stream(prompts, params):
        (answer,) = output.outputs
        before = last.get(output.request_id)
        if before is not None:
            assert not before.finished, "nothing comes after the end"
            assert answer.token_ids[:-1] == before.outputs[0].token_ids
            assert answer.text.startswith(before.outputs[0].text), "text that was shown stays"
        assert output.finished == (answer.finish_reason is not None)
        last[output.request_id] = output
    assert answers(sorted(last.values(), key=lambda output: int(output.request_id))) == answers(
        llm.generate(prompts, params)
    )


def test_outputs_of_a_stream_never_change_afterwards(llm):
    outputs = list(llm.stream([5, 9], GO_ON))
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 2, 3, 4, 5, 6]


def test_stream_asks_after_each_request_a_bounded_number_of_times(make_llm, monkeypatch):
    """Counted, not timed: a step must cost no more when many requests have ended before it."""
    llm = make_llm(cache="continuous", max_num_seqs=1)
    asked = []
    is_unfinished = llm.engine.is_unfinished

    def counted(request_id):
        asked.append(request_id)
        return is_unfinished(request_id)

    monkeypatch.setattr(llm.engine, "is_unfinished", counted)
    num_steps = llm.engine.stats().num_steps
    assert len(list(llm.stream([[1, 2]] * 40, SamplingParams(max_tokens=2, ignore_eos=True)))) == 80
    num_steps = llm.engine.stats().num_steps - num_steps
    assert num_steps == 80
    assert len(asked) <= num_steps + 3 * 40, "once for each step, and for each request behind its end"


def test_stream_runs_nothing_before_it_is_asked(llm, count_passes):
    passes = count_passes(llm)
    stream = llm.stream([[5, 9], [6]], GO_ON)
    assert passes == []
    next(stream)
    assert passes == [1]


def test_stream_that_is_abandoned_does_not_disturb_the_next(llm):
    prompts = ["the wing", [5, 9], [7]]
    expected = answers(llm.generate(prompts, GO_ON))
    abandoned = llm.stream([[5, 9], "a", [5, 9, 9]], GO_ON)
    for _ in range(4):
        next(abandoned)
    assert answers(llm.generate(prompts, GO_ON)) == expected
    abandoned.close()
    assert not llm.engine.has_unfinished_requests()
    assert answers(llm.generate(prompts, GO_ON)) == expected


def test_two_streams_in_turn_never_disturb_each_other(llm):
    prompts = [["the wing", [5, 9]], [[5, 9, 9], "a"]]
    expected = [answers(llm.stream(own, GO_ON)) for own in prompts]
    streams = [llm.stream(own, GO_ON) for own in prompts]
    assert [answers(pair) for pair in zip(*zip(*streams, strict=True), strict=True)] == expected


MESSAGES = [{"role": "system", "content": "the"}, {"role": "user", "content": "wing"}]


def test_chat_answers_what_its_template_makes_of_a_conversation(llm):
    other = [{"role": "user", "content": "a"}]
    expected = [llm.tokenizer.encode_chat(messages) for messages in (MESSAGES, other)]
    assert [output.prompt_token_ids for output in llm.chat(MESSAGES, GO_ON)] == expected[:1]
    outputs = llm.chat([MESSAGES, other], [GO_ON, SamplingParams(max_tokens=2)])
    assert [output.prompt_token_ids for output in outputs] == expected
    assert [output.outputs for output in outputs[:1]] == [llm.generate(expected[0], GO_ON)[0].outputs]
    assert llm.chat([]) == []


def test_chat_refuses_a_message_without_its_parts_before_anything_runs(llm, count_passes):
    passes = count_passes(llm)
    for conversation in ([{"role": "user"}], [{"content": "a"}]):
        with pytest.raises(RequestError, match=r"messages are .*; give a list of at least one, each with"):
            llm.chat([MESSAGES, conversation], GO_ON)
    assert passes == []


def test_llm_without_tokenizer_takes_ids_and_refuses_text():
    spec = CheckpointSpec(hidden_size=16, intermediate_size=24, head_dim=8, vocab_size=29)
    llm = LLM(str(cached_checkpoint(spec)))
    assert (llm.tokenizer, llm.eos_token_ids, llm.max_model_len) == (None, (), 512)
    (output,) = llm.generate([3, 4], GO_ON)
    assert (len(output.outputs[0].token_ids), output.outputs[0].text) == (6, None)
    for call in (lambda: llm.generate("a"), lambda: llm.generate(["a", "b"]), lambda: llm.chat(MESSAGES)):
        with pytest.raises(ConfigError, match=r"no tokenizer, so prompts must be token ids; add tokenizer\.json"):
            call()


def test_llm_refuses_options_that_cannot_work(text_folder, tmp_path):
    with pytest.raises(ConfigError, match="option speculative='ngram' says nothing to cache 'static'"):
        LLM(text_folder, cache="static", speculative="ngram")
    with pytest.raises(ConfigError, match="option block_size=16 says nothing to cache 'static'"):
        LLM(text_folder, cache="static", block_size=16)
    words = "3 blocks of 16 tokens cannot hold one request of max_model_len 64; give a max_model_len of at most 48"
    with pytest.raises(ConfigError, match=words):
        LLM(text_folder, num_blocks=3, max_model_len=64)
    with pytest.raises(
        ConfigError, match=r"option max_len=5 is unknown; did you mean max_model_len\? the options are cache"
    ):
        LLM(text_folder, max_len=5)
    with pytest.raises(ConfigError, match=r"max_model_len 65 is more than the 64 positions .*max_position_embeddings"):
        LLM(text_folder, max_model_len=65)
    assert LLM(text_folder, max_model_len=64).max_model_len == LLM(text_folder).max_model_len == 64
    with pytest.raises(CheckpointError, match="is not a folder"):
        LLM(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        LLM(tmp_path)


def test_interrupt_while_requests_are_added_takes_them_away_and_the_next_call_answers(llm, monkeypatch):
    prompts = [[5, 9], "the wing", [7]]
    expected = answers(llm.generate(prompts, GO_ON))
    made = []

    def answer(*arguments):
        made.append(arguments)
        if len(made) == 2:
            raise KeyboardInterrupt
        return Answer(*arguments)

    monkeypatch.setattr(core, "Answer", answer)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(prompts, GO_ON)
    assert not llm.engine.has_unfinished_requests()
    assert answers(llm.generate(prompts, GO_ON)) == expected


def test_interrupt_in_the_clean_up_of_an_interrupt_is_made_good_by_the_next_call(llm, monkeypatch):
    expected = answers(llm.generate([[5, 9], [7]], GO_ON))
    with monkeypatch.context() as patch:
        patch.setattr(llm.engine, "step", interrupt)
        patch.setattr(llm.engine, "abort_request", interrupt)
        with pytest.raises(KeyboardInterrupt):
            llm.generate([[5, 9], [7]], GO_ON)
    assert llm.engine.has_unfinished_requests()
    assert answers(llm.generate([[5, 9], [7]], GO_ON)) == expected
    assert not llm.engine.has_unfinished_requests()


def test_end_that_was_on_its_way_when_another_stream_was_interrupted_is_told(llm, monkeypatch):
    two = SamplingParams(max_tokens=2, ignore_eos=True)
    expected = answers(llm.generate([5, 9], two))
    one, other = llm.stream([5, 9], two), llm.stream([7], GO_ON)
    next(one)
    next(other)
    step = llm.engine.step

    def step_and_interrupt():
        step()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine, "step", step_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(other)
    assert answers(list(one)[-1:]) == expected


def interrupt(*_):
    raise KeyboardInterrupt

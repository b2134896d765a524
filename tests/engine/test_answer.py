"""What one sample has given so far."""

import pytest

from refinfer.engine.answer import Answer, with_text
from refinfer.sampling import Finish, FinishReason, SamplingParams, TokenLogprob


@pytest.fixture
def answer_of(make_llm, states_of):
    """An answer to a request, with the tokenizer of a real one."""
    tokenizer = make_llm(cache="none").tokenizer

    def make(**params):
        (state,) = states_of([5], SamplingParams(**params))
        return state, Answer(state, tokenizer), tokenizer

    return make


def push(state, answer, token_id, end=None, logprobs=None):
    state.append(token_id)
    return answer.push(token_id, end, logprobs)


def test_text_is_held_back_while_a_stop_string_may_begin_and_shown_when_none_came(answer_of):
    state, answer, tokenizer = answer_of(stop=["wings"])
    ids = tokenizer.encode("the wing")[1:]
    for token_id in ids:
        assert push(state, answer, token_id) is None
    shown = answer.output().text
    assert not shown.endswith("w")
    answer.abort()
    assert answer.output().text == tokenizer.decode(ids)


def test_stop_string_ends_the_text_before_it_and_its_tokens_stay(answer_of):
    state, answer, tokenizer = answer_of(stop=["wing"])
    ids = tokenizer.encode("the wing")[1:]
    ends = [push(state, answer, token_id) for token_id in ids]
    assert ends[-1] == Finish(FinishReason.STOP, "wing")
    assert ends[:-1] == [None] * (len(ids) - 1)
    output = answer.output()
    assert (output.token_ids, output.text) == (ids, tokenizer.decode(ids).removesuffix("wing"))


def test_length_ends_a_text_that_is_shown_whole(answer_of):
    state, answer, tokenizer = answer_of(stop=["wings"])
    *ids, last = tokenizer.encode("the wing")[1:]
    for token_id in ids:
        push(state, answer, token_id)
    end = Finish(FinishReason.LENGTH)
    assert push(state, answer, last, end) == end
    assert answer.output().text == tokenizer.decode([*ids, last])


def test_logprobs_come_one_for_each_token_and_add_up(answer_of):
    state, answer, _ = answer_of(logprobs=0)
    for token_id, logprob in ((7, -0.5), (8, -1.25)):
        push(state, answer, token_id, logprobs={token_id: TokenLogprob(logprob, 1)})
    output = answer.output()
    assert [list(entry) for entry in output.logprobs] == [[7], [8]]
    assert output.cumulative_logprob == -1.75


def test_outputs_never_change_afterwards(answer_of):
    state, answer, _ = answer_of(logprobs=0)
    before = answer.output()
    push(state, answer, 7, logprobs={7: TokenLogprob(-0.5, 1)})
    assert (before.token_ids, before.logprobs) == ([], [])


def test_with_text_adds_each_token_as_text(answer_of):
    _, _, tokenizer = answer_of()
    (entry,) = with_text({9: TokenLogprob(-0.5, 2)}, tokenizer).values()
    assert (entry.logprob, entry.rank, entry.decoded_token) == (-0.5, 2, tokenizer.decode([9]))
    assert with_text({9: TokenLogprob(-0.5, 2)}, None)[9].decoded_token is None


def test_answer_comes_back_to_the_tokens_that_state_and_log_probabilities_agree_on(answer_of):
    state, answer, tokenizer = answer_of(logprobs=0, stop=["wings"])
    ids = tokenizer.encode("the wing")[1:]
    for token_id in ids:
        push(state, answer, token_id, logprobs={token_id: TokenLogprob(-0.5, 1)})
    before = answer.output()
    state.append(7)
    answer._text = "half of what"
    assert answer.recover(lambda _: None) is None
    assert answer.output() == before
    end = Finish(FinishReason.LENGTH)
    assert answer.recover(lambda num_tokens: end if num_tokens == len(ids) else None) == end
    assert answer.output().text == tokenizer.decode(ids)

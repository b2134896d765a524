"""Requests share steps, sequences and prefixes, and each gets the tokens that are due to it alone."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.engines.adapters.llama_cpp_slots import Slots
from oracle.engines.messages import EngineRequest

VOCAB_SIZE = 17


def row_after(token_ids):
    """Logits that are a function of a sequence's tokens and of nothing else."""
    return np.random.default_rng(zlib.crc32(bytes(token_ids))).normal(size=VOCAB_SIZE).astype(np.float32)


class HashContext:
    """Keeps what each sequence holds, and refuses what a real context could not do."""

    def __init__(self, num_batch=512):
        self.num_batch = num_batch
        self.held: dict[int, list[int]] = {}
        self.rows: dict[int, np.ndarray] = {}
        self.num_decoded = 0
        self.is_broken = False

    def decode(self, tokens):
        assert 0 < len(tokens) <= self.num_batch
        if self.is_broken:
            message = "llama_decode gave -1"
            raise RuntimeError(message)
        self.rows = {}
        self.num_decoded += len(tokens)
        for place, token in enumerate(tokens):
            sequence = self.held.setdefault(token.sequence, [])
            assert token.position == len(sequence), "a position was left out or written twice"
            sequence.append(token.token_id)
            if token.wants_logits:
                self.rows[place] = row_after(sequence)

    def logits(self, place):
        return self.rows[place]

    def forget(self, sequence, first=0):
        self.held[sequence] = self.held.get(sequence, [])[:first]

    def share(self, source, target):
        assert not self.held.get(target)
        self.held[target] = list(self.held[source])


class GreedySampler:
    """Takes the best token, or the one that is so many places behind it."""

    def __init__(self, context, place):
        self.context = context
        self.place = place
        self.is_closed = False

    def sample(self, place):
        return int(np.argsort(-self.context.logits(place))[self.place])

    def close(self):
        assert not self.is_closed
        self.is_closed = True


def alone(prompt, max_tokens, place=0, stops=()):
    """What a request gives that is computed by itself, without any cache."""
    output: list[int] = []
    while len(output) < max_tokens and not (output and output[-1] in stops):
        output.append(int(np.argsort(-row_after([*prompt, *output]))[place]))
    return output


def run(requests, *, num_sequences=8, num_batch=512, keeps_prompts=False, context=None, stops=()):
    context = context or HashContext(num_batch)
    slots = Slots(context, num_sequences, num_batch, keeps_prompts=keeps_prompts)
    return run_in(slots, context, requests, stops), slots


def run_in(slots, context, requests, stops=()):
    waiting, answers = list(requests), {}
    while waiting or slots.running:
        while waiting:
            begun = slots.admit(waiting[0], lambda _, place: GreedySampler(context, place))
            if begun is None:
                break
            answers[waiting.pop(0).request_id] = begun
        slots.step(lambda _: frozenset(stops))
    return [answers[request.request_id] for request in requests]


def outputs_of(answers):
    return [[answer.output for answer in begun] for begun in answers]


@given(
    prompts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=6),
    max_tokens=st.integers(1, 4),
    number=st.integers(1, 2),
    num_batch=st.sampled_from([512, 5, 1]),
    num_sequences=st.sampled_from([8, 2]),
    keeps_prompts=st.booleans(),
)
def test_any_company_gives_what_is_due_alone(prompts, max_tokens, number, num_batch, num_sequences, keeps_prompts):
    requests = [
        EngineRequest(str(place), tuple(prompt), max_tokens, {"n": number}) for place, prompt in enumerate(prompts)
    ]
    due = [[alone(prompt, max_tokens, place) for place in range(number)] for prompt in prompts]
    found, slots = run(requests, num_batch=num_batch, num_sequences=num_sequences, keeps_prompts=keeps_prompts)
    assert outputs_of(found) == due
    again = run_in(slots, slots._context, requests)
    assert outputs_of(again) == due
    assert all(answer.sampler.is_closed for begun in (*found, *again) for answer in begun)


def test_kept_prefix_is_not_computed_again():
    context = HashContext()
    (_,), slots = run([EngineRequest("a", (1, 2, 3, 4), 1)], keeps_prompts=True, context=context)
    context.num_decoded = 0
    run_in(slots, context, [EngineRequest("b", (1, 2, 3, 9), 1)])
    assert context.num_decoded == 1
    assert slots.witnesses["cached_tokens"] == 3


def test_last_token_of_a_kept_prompt_runs_again():
    context = HashContext()
    _, slots = run([EngineRequest("a", (1, 2, 3), 2)], keeps_prompts=True, context=context)
    (answers,) = run_in(slots, context, [EngineRequest("b", (1, 2, 3), 1)])
    assert answers[0].output == alone((1, 2, 3), 1)
    assert slots.witnesses["cached_tokens"] == 2


def test_nothing_is_kept_unless_told():
    context = HashContext()
    _, slots = run([EngineRequest("a", (1, 2, 3, 4), 1)], context=context)
    run_in(slots, context, [EngineRequest("b", (1, 2, 3, 4), 1)])
    assert slots.witnesses["cached_tokens"] == 0
    assert not any(context.held.values())


def test_scores_of_a_prompt_are_those_of_all_of_it():
    context = HashContext()
    prompt = (1, 2, 3, 4)
    _, slots = run([EngineRequest("a", prompt, 1)], keeps_prompts=True, num_batch=2, context=context)
    (answers,) = run_in(slots, context, [EngineRequest("b", prompt, 2, {"prompt_logprobs": 0})])
    assert len(answers[0].prompt_rows) == len(prompt)
    for place, row in enumerate(answers[0].prompt_rows):
        np.testing.assert_array_equal(row, row_after(prompt[: place + 1]))


@pytest.mark.parametrize(("abort_after", "ending", "number"), [(None, "length", 4), (2, "abort", 2), (9, "length", 4)])
def test_request_ends_for_a_reason(abort_after, ending, number):
    ((answer,),), _ = run([EngineRequest("a", (1, 2), 4, abort_after=abort_after)])
    assert (answer.ending, len(answer.output)) == (ending, number)


def test_stop_token_ends_a_request():
    stop = alone((1, 2), 3)[1]
    ((answer,),), _ = run([EngineRequest("a", (1, 2), 4)], stops=(stop,))
    assert (answer.ending, answer.output[-1]) == ("stop", stop)


def test_request_waits_for_sequences():
    requests = [EngineRequest(str(place), (place,), 3, {"n": 2}) for place in range(3)]
    _, slots = run(requests, num_sequences=2)
    assert slots.witnesses["max_batch"] <= 2
    assert slots.witnesses["forks"] == 3


def test_long_prompts_are_cut_and_counted():
    _, slots = run([EngineRequest("a", tuple(range(9)), 1)], num_batch=4)
    assert slots.witnesses["chunked_prompts"] == 2
    assert slots.witnesses["steps"] == 3


def test_step_that_failed_leaves_nothing_behind():
    context = HashContext()
    slots = Slots(context, 4, 512, keeps_prompts=True)
    request = EngineRequest("a", (1, 2), 2, {"n": 2})
    samplers = [GreedySampler(context, place) for place in range(2)]
    slots.admit(request, lambda _, place: samplers[place])
    context.is_broken = True
    with pytest.raises(RuntimeError, match="llama_decode gave -1"):
        slots.step(lambda _: frozenset())
    slots.reset()
    assert [sampler.is_closed for sampler in samplers] == [True, True]
    context.is_broken = False
    assert outputs_of(run_in(slots, context, [request])) == [[alone((1, 2), 2, place) for place in range(2)]]

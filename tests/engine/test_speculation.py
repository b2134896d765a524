"""Guesses in the engine: who is guessed for, and that nothing but the number of steps shows it."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from oracle.invariants import check_core, check_drained
from oracle.scripted_proposer import ScriptedProposer
from refinfer import RequestOutput
from refinfer.config import EngineConfig
from refinfer.engine.assembly import make_core
from refinfer.engine.core import EngineCore
from refinfer.engine.loading import LoadedModel
from refinfer.engine.speculation import Speculation
from refinfer.sampling import SamplingParams
from refinfer.scheduler import ContinuousScheduler, ScheduledRow
from refinfer.speculative import Draft

pytestmark = pytest.mark.without_shape_checks

NO_EOS: frozenset[int] = frozenset()
VOCAB_SIZE = 29
REPETITIVE = [
    ([1, 2, 3] * 4, SamplingParams(max_tokens=14, logprobs=2)),
    ([5] * 7, SamplingParams(max_tokens=12, n=2, temperature=1.0, top_k=2, logprobs=1)),
    ([4, 9, 4, 9, 4], SamplingParams(max_tokens=16, repetition_penalty=1.1, logprobs=0)),
    ([7, 8, 9, 7, 8], SamplingParams(max_tokens=9, prompt_logprobs=1, min_tokens=3, logit_bias={7: 6.0, 8: 6.0})),
    ([6, 6, 2], SamplingParams(max_tokens=13, temperature=0.3, seed=4, logit_bias={6: 4.0}, logprobs=3)),
]


class Recorder:
    """Guesses one token over and over, and keeps what it was asked and what it was told to forget."""

    def __init__(self, token_id=9):
        self.token_id = token_id
        self.asked = []
        self.forgotten = []

    def propose(self, requests):
        self.asked.append([(request.key, request.num_tokens) for request in requests])
        return [Draft((self.token_id,) * request.num_tokens) for request in requests]

    def forget(self, key):
        self.forgotten.append(key)


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def speculation(recorder):
    """Of at most four tokens, with requests of at most 20."""
    return Speculation(recorder, 4, eos_token_ids=NO_EOS, max_model_len=20)


@pytest.fixture
def add(states_of):
    """Queues a request in a scheduler; the first of its prompt and output tokens have run."""

    def queue(scheduler, name, prompt, num_output_tokens=1, num_computed_tokens=None, *, runs=True, **params):
        (state,) = states_of(prompt, SamplingParams(**{"max_tokens": 12} | params), name)
        scheduler.add(state)
        if runs:
            assert scheduler.admit()
        for _ in range(num_output_tokens):
            state.append(0)
        state.num_computed_tokens = state.num_tokens - 1 if num_computed_tokens is None else num_computed_tokens
        return state

    return queue


# Who is guessed for


def test_only_who_runs_and_has_its_newest_token_left_is_guessed_for(speculation, recorder, add):
    scheduler = ContinuousScheduler(9)
    ready = add(scheduler, "ready", [1, 2, 3])
    prompt = add(scheduler, "prompt", [1, 2, 3], 0, 1)
    behind = add(scheduler, "behind", [1, 2, 3], 4, 5)
    waiting = add(scheduler, "waiting", [1], 0, 0, runs=False)
    drafts = speculation.propose(scheduler)
    assert recorder.asked == [[(ready, 4)]]
    assert drafts == [Draft((9, 9, 9, 9))]
    assert [state.draft_token_ids for state in (ready, prompt, behind, waiting)] == [(9, 9, 9, 9), (), (), ()]


def test_nobody_is_guessed_for_while_prompt_logprobs_are_wanted(speculation, recorder, add):
    scheduler = ContinuousScheduler(9)
    state = add(scheduler, "a", [1, 2, 3], 0, prompt_logprobs=1)
    speculation.propose(scheduler)
    assert recorder.asked == [[]]
    state.append(0)
    state.num_scored_tokens = state.num_computed_tokens = 3
    speculation.propose(scheduler)
    assert recorder.asked[1:] == [[(state, 4)]]


@pytest.mark.parametrize(
    ("max_tokens", "num_output_tokens", "num_guessed"),
    [(12, 1, 4), (6, 1, 4), (5, 1, 3), (3, 1, 1), (2, 1, 0), (12, 10, 1), (12, 11, 0), (None, 1, 4), (None, 14, 2)],
)
def test_guess_never_reaches_the_last_token_that_a_request_may_have(
    speculation, recorder, add, max_tokens, num_output_tokens, num_guessed
):
    """One token comes after all that are guessed: of `max_tokens`, or of the 20 of `max_model_len`."""
    scheduler = ContinuousScheduler(9)
    state = add(scheduler, "a", [1, 2, 3], num_output_tokens, max_tokens=max_tokens)
    speculation.propose(scheduler)
    assert recorder.asked == [[(state, num_guessed)] if num_guessed else []]
    assert len(state.draft_token_ids) == num_guessed


def test_guess_of_the_step_before_is_dropped_where_nothing_is_guessed(speculation, add):
    scheduler = ContinuousScheduler(9)
    state = add(scheduler, "a", [1, 2, 3])
    speculation.propose(scheduler)
    assert state.draft_token_ids
    state.append(0)
    speculation.propose(scheduler)
    assert state.draft_token_ids == ()


def test_only_as_much_of_a_guess_is_verified_as_has_run(speculation, add):
    scheduler = ContinuousScheduler(9)
    state = add(scheduler, "a", [1, 2, 3], ignore_eos=True)
    speculation.propose(scheduler)
    row = ScheduledRow.of(state, 3)
    assert row.draft_token_ids == (9, 9)
    logits = torch.nn.functional.one_hot(torch.tensor([9, 9, 5]), VOCAB_SIZE).double().numpy()
    assert speculation.verify(row, logits) == [9, 9, 5]
    assert speculation.verify(row, logits[[0, 2, 1]]) == [9, 5]


def test_who_has_ended_is_forgotten_by_what_guesses(speculation, recorder, add):
    scheduler = ContinuousScheduler(9)
    state = add(scheduler, "a", [1, 2, 3])
    speculation.propose(scheduler)
    speculation.forget(state)
    speculation.forget(state)
    assert recorder.forgotten == [state, state]
    with pytest.raises(KeyError):
        speculation.verify(ScheduledRow.of(state, 2), torch.zeros(2, VOCAB_SIZE).numpy())


# Whole engines


def drain(core, runs):
    """Runs to the end; gives what came out."""
    while core.has_unfinished_requests():
        core.step()
    check_drained(core)
    return [(answer.output(), answer.prompt_logprobs) for _, answer in runs]


def added(core, states_of, members):
    return [
        (state, core.add(state))
        for number, (prompt, params) in enumerate(members)
        for state in states_of(prompt, params, str(number), seed=number)
    ]


@pytest.fixture(scope="module")
def expected(new_core, states_of):
    """What comes out without guesses."""
    core = new_core("paged", num_blocks=40)
    runs = added(core, states_of, REPETITIVE)
    outputs = drain(core, runs)
    keys = [(state.request.request_id, state.sample_index) for state, _ in runs]
    return dict(zip(keys, outputs, strict=True))


@pytest.fixture
def core_with(new_core):
    """A core with a proposer of the test's own."""

    def make(proposer, num_tokens=4, *, eos_token_ids=NO_EOS, max_model_len=32, **options):
        core = new_core("paged", eos_token_ids=eos_token_ids, max_model_len=max_model_len, **options)
        speculation = Speculation(proposer, num_tokens, eos_token_ids=eos_token_ids, max_model_len=max_model_len)
        return EngineCore(
            core.scheduler,
            core.runner,
            eos_token_ids=eos_token_ids,
            max_model_len=max_model_len,
            speculation=speculation,
        )

    return make


def scripted(expected, guesses=("right",)):
    known = {key: output.token_ids for key, (output, _) in expected.items()}
    return ScriptedProposer(known, guesses, 1, VOCAB_SIZE)


WAYS: dict[str, dict[str, Any]] = {
    "roomy": {"num_blocks": 40},
    "tight": {"num_blocks": 9, "max_num_batched_tokens": 9},
    "tight-swap": {"num_blocks": 9, "max_num_batched_tokens": 12, "preemption": "swap", "block_size": 4},
    "few at a time": {"max_num_seqs": 2, "scheduling": "prefill_first", "enable_prefix_caching": False},
}


@pytest.mark.parametrize("num_tokens", [1, 2, 4, 8])
@pytest.mark.parametrize("way", WAYS)
def test_looked_up_guesses_do_not_change_a_bit_of_the_outputs(new_core, states_of, expected, way, num_tokens):
    core = new_core("paged", speculative="ngram", num_speculative_tokens=num_tokens, **WAYS[way])
    runs = added(core, states_of, REPETITIVE)
    assert drain(core, runs) == list(expected.values())
    stats = core.stats()
    assert stats.num_accepted_tokens > 0, "guesses stayed"
    assert stats.num_proposed_tokens > stats.num_accepted_tokens, "and others did not"
    assert stats.num_preemptions > 0 or "tight" not in way


@pytest.mark.parametrize("guesses", [("right",), ("wrong",), ("right", "right", "wrong"), ("nothing", "right", "end")])
@pytest.mark.parametrize("way", WAYS)
def test_good_and_bad_guesses_do_not_change_a_bit_of_the_outputs(core_with, states_of, expected, way, guesses):
    core = core_with(scripted(expected, guesses), **WAYS[way])
    assert drain(core, added(core, states_of, REPETITIVE)) == list(expected.values())


def test_right_guesses_save_steps_and_wrong_ones_cost_none(core_with, states_of, expected):
    num_steps = {}
    for guess in ("right", "wrong", "nothing"):
        core = core_with(scripted(expected, (guess,)), 3, num_blocks=40)
        drain(core, added(core, states_of, REPETITIVE))
        num_steps[guess] = core.stats().num_steps
    assert num_steps["wrong"] == num_steps["nothing"] == 1 + 16, "the longest answer waits a step behind a prompt"
    assert num_steps["right"] == 1 + 1 + 4, "after its first token four a step"


@pytest.mark.parametrize("guesses", [("right",), ("right", "right", "wrong"), ("right", "nothing", "wrong", "right")])
def test_counts_of_guesses_add_up(core_with, states_of, expected, guesses):
    """Against the log of the steps and what was asked."""
    inner = scripted(expected, guesses)
    num_empty = []

    class Watched(Recorder):
        def propose(self, requests):
            drafts = inner.propose(requests)
            num_empty.append(sum(draft == Draft() for draft in drafts))
            return drafts

    core = core_with(Watched(), num_blocks=40)
    runs = added(core, states_of, REPETITIVE)
    drain(core, runs)
    stats = core.stats()
    rows_by_sample: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for event in core.events:
        for name, index, num_tokens, emitted in event.rows:
            rows_by_sample.setdefault((name, index), []).append((num_tokens, len(emitted)))
    ran = [row for rows in rows_by_sample.values() for row in rows]
    # The first row of each is its whole prompt; those after it run the newest token and what is guessed.
    guessed = [
        (num_tokens - 1, num) for rows in rows_by_sample.values() for num_tokens, num in rows[1:] if num_tokens > 1
    ]
    assert stats.num_proposed_tokens == sum(num_guessed for num_guessed, _ in guessed)
    assert stats.num_accepted_tokens == sum(num_emitted - 1 for _, num_emitted in guessed)
    assert stats.num_bonus_tokens == sum(num_emitted == num_guessed + 1 for num_guessed, num_emitted in guessed)
    assert stats.num_empty_drafts == sum(num_empty)
    assert stats.num_emitted_tokens == sum(num_emitted for _, num_emitted in ran)
    assert stats.num_emitted_tokens == sum(state.num_output_tokens for state, _ in runs)
    assert stats.num_scheduled_tokens == sum(num_tokens for num_tokens, _ in ran)
    assert stats.num_proposed_tokens >= stats.num_accepted_tokens > 0
    assert (stats.num_proposed_tokens == stats.num_accepted_tokens) is (guesses == ("right",))


@pytest.mark.parametrize("guesses", [("right",), ("right", "wrong")], ids=str)
def test_step_with_guesses_that_fails_anywhere_does_not_change_outputs(
    model, core_with, states_of, expected, failing, guesses
):
    """Requests stay where they were; blocks for guessed tokens wait for the next step, and are lost to nobody."""
    core = core_with(scripted(expected, guesses), **WAYS["tight"])
    drain(core, added(core, states_of, REPETITIVE))
    for pass_number in range(1, core.stats().num_steps + 1, 2):
        core = core_with(scripted(expected, guesses), **WAYS["tight"])
        runs = added(core, states_of, REPETITIVE)
        with failing(model, pass_number) as passes:
            while core.has_unfinished_requests() and passes[0] < pass_number:
                before = [(list(state.token_ids), answer.output()) for state, answer in runs]
                try:
                    core.step()
                except RuntimeError:
                    assert [(state.token_ids, answer.output()) for state, answer in runs] == before
                    check_core(core)
        assert passes[0] == pass_number, "the failure has happened"
        assert drain(core, runs) == list(expected.values())


def test_request_that_is_aborted_with_a_guess_leaves_no_block(model, core_with, states_of, expected, failing):
    """In the step that failed its guess had room, which nobody has taken back."""
    core = core_with(scripted(expected), 8, num_blocks=40, enable_prefix_caching=False)
    runs = added(core, states_of, REPETITIVE)
    core.step()
    with failing(model, 1), pytest.raises(RuntimeError, match="planted"):
        core.step()
    (victim, answer), others = runs[0], runs[1:]
    assert victim.draft_token_ids
    assert victim.blocks.table.num_slots > victim.num_tokens + 3
    core.abort(victim)
    check_core(core)
    assert victim.blocks.table.block_ids == []
    assert answer.output().finish_reason == "abort"
    assert drain(core, others) == list(expected.values())[1:]


def test_proposer_forgets_every_sample_once_it_has_ended(core_with, states_of):
    recorder = Recorder()
    core = core_with(recorder, num_blocks=40)
    runs = added(core, states_of, REPETITIVE)
    core.step()
    core.abort(runs[0][0])
    drain(core, runs)
    assert sorted(map(id, recorder.forgotten)) == sorted(id(state) for state, _ in runs)


# Ends inside a guess


ENDLESS = [([1, 2, 3], SamplingParams(max_tokens=20, logprobs=1))]


@pytest.fixture(scope="module")
def endless(new_core, states_of):
    """Twenty tokens that nothing ends."""
    core = new_core("paged")
    ((output, _),) = drain(core, added(core, states_of, ENDLESS))
    return output.token_ids


@pytest.mark.parametrize("place", range(1, 9))
@pytest.mark.parametrize("by", ["eos", "stop token"])
def test_end_inside_a_guess_ends_the_request_where_it_ends_without(new_core, core_with, states_of, endless, place, by):
    """Tokens behind it were right, and are dropped; nothing of them shows in tokens, log-probabilities or counts."""
    end = endless[place]
    eos = frozenset({end}) if by == "eos" else NO_EOS
    prompt, params = ENDLESS[0]
    members = [(prompt, params if by == "eos" else replace(params, stop_token_ids=(end,)))]
    alone = new_core("paged", eos_token_ids=eos)
    expected = drain(alone, added(alone, states_of, members))
    core = core_with(ScriptedProposer({("0", 0): endless}, ("right",), 1, VOCAB_SIZE), 4, eos_token_ids=eos)
    runs = added(core, states_of, members)
    assert drain(core, runs) == expected
    num_tokens = endless.index(end) + 1
    assert runs[0][0].output_token_ids == endless[:num_tokens]
    assert runs[0][0].finish_reason == "stop"
    stats = core.stats()
    assert stats.num_emitted_tokens == num_tokens
    assert stats.num_steps == 1 + -(-(num_tokens - 1) // 5)
    assert stats.num_bonus_tokens == (num_tokens - 1) // 5, "a guess with an end in it gives none"


@pytest.mark.parametrize("max_tokens", range(1, 9))
@pytest.mark.parametrize("num_tokens", [1, 3, 8])
def test_length_is_hit_exactly(core_with, states_of, endless, max_tokens, num_tokens):
    core = core_with(ScriptedProposer({("0", 0): endless}, ("right",), 1, VOCAB_SIZE), num_tokens)
    (state,) = states_of([1, 2, 3], SamplingParams(max_tokens=max_tokens), "0")
    core.add(state)
    drain(core, [])
    assert (state.output_token_ids, state.finish_reason) == (endless[:max_tokens], "length")


def test_longest_request_is_hit_exactly(core_with, states_of, endless):
    for max_model_len in range(4, 12):
        core = core_with(
            ScriptedProposer({("0", 0): endless}, ("right",), 1, VOCAB_SIZE), 4, max_model_len=max_model_len
        )
        (state,) = states_of([1, 2, 3], SamplingParams(max_tokens=None), "0")
        core.add(state)
        drain(core, [])
        assert (state.num_tokens, state.finish_reason) == (max_model_len, "length")


# Text


@pytest.fixture(scope="module")
def loaded(text_folder):
    return LoadedModel.load(text_folder, dtype="float64")


@pytest.fixture(scope="module")
def run_text(loaded, states_of):
    """Runs one request; gives its answer at the end, and its text after each step."""

    def run(params, *, known=None, num_tokens=4, max_model_len=64):
        base = make_core(loaded, EngineConfig(block_size=4, num_blocks=20), max_model_len)
        eos = frozenset(loaded.eos_token_ids)
        core = EngineCore(
            base.scheduler,
            base.runner,
            eos_token_ids=eos,
            max_model_len=max_model_len,
            tokenizer=loaded.tokenizer,
            speculation=None
            if known is None
            else Speculation(
                ScriptedProposer({("a", 0): known}, ("right",), 1, 320),
                num_tokens,
                eos_token_ids=eos,
                max_model_len=max_model_len,
            ),
        )
        (state,) = states_of(loaded.tokenizer.encode("the wing"), params)
        answer = core.add(state)
        texts = []
        while core.has_unfinished_requests():
            core.step()
            texts.append(answer.text)
        check_drained(core)
        return answer.output(), texts

    return run


WORDS = dict.fromkeys((268, 271, 264, 266, 267, 274, 270), 30.0)
"""Biased towards pieces of text, so that strings can be found in what comes out."""


@pytest.fixture(scope="module")
def text_params():
    return SamplingParams(max_tokens=24, ignore_eos=True, logit_bias=WORDS, frequency_penalty=2.0, logprobs=1)


@pytest.mark.parametrize("num_tokens", [1, 3, 8])
def test_text_that_was_shown_is_never_taken_back(run_text, text_params, num_tokens):
    expected, one_by_one = run_text(text_params)
    output, texts = run_text(text_params, known=expected.token_ids, num_tokens=num_tokens)
    assert output == expected
    assert len(texts) == 1 + -(-23 // (num_tokens + 1)) < len(one_by_one) == 24
    for before, after in pairwise(texts):
        assert after.startswith(before)
    assert set(texts) <= set(one_by_one), "each is what is shown after as many tokens without guesses"


@pytest.mark.parametrize("start", range(2, 18))
def test_stop_string_inside_a_guess_ends_the_text_before_it(run_text, text_params, start):
    """It may begin in one step and end in the next; what could be its beginning is held back."""
    endless, _ = run_text(text_params)
    params = replace(text_params, stop=(endless.text[start : start + 3],))
    expected, one_by_one = run_text(params)
    assert expected.finish_reason == "stop"
    for num_tokens in (2, 5):
        output, texts = run_text(params, known=endless.token_ids, num_tokens=num_tokens)
        assert output == expected
        assert set(texts) <= set(one_by_one)
        assert all(output.text.startswith(text) for text in texts)


def test_stream_of_a_speculating_llm_grows_by_several_tokens_and_ends_like_any_other(make_llm):
    prompts = ["the wing", [5, 9, 5, 9], [7]]
    params = [
        SamplingParams(max_tokens=20, ignore_eos=True, logit_bias=WORDS, logprobs=1),
        SamplingParams(max_tokens=15, temperature=1.0, top_k=2, seed=3, n=2, logit_bias=WORDS),
        SamplingParams(max_tokens=12, stop=("a",)),
    ]
    alone, llm = make_llm(), make_llm(speculative="ngram", num_speculative_tokens=3)
    expected = [output.outputs for output in alone.generate(prompts, params)]
    last: dict[str, RequestOutput] = {}
    growth = set()
    for output in llm.stream(prompts, params):
        before = last.get(output.request_id)
        for place, answer in enumerate(output.outputs):
            if before is not None:
                num_before = len(before.outputs[place].token_ids)
                growth.add(len(answer.token_ids) - num_before)
                assert answer.token_ids[:num_before] == before.outputs[place].token_ids
                assert answer.text.startswith(before.outputs[place].text), "text that was shown stays"
        last[output.request_id] = output
    assert [last[name].outputs for name in sorted(last, key=int)] == expected
    assert max(growth) > 1, "guesses stayed"

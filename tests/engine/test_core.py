"""Steps of the engine's core: what a plain loop over each request alone would give, whatever happens on the way."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oracle.chain_runner import VOCAB_SIZE, ChainRunner, chain, chain_logits
from oracle.invariants import check_core, check_drained
from refinfer.cache import CausalAttentionView
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import make_states
from refinfer.errors import InvariantError, NoTokenLeftError
from refinfer.sampling import FinishReason, SampleContext, SamplingParams, finish, sample_token
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request, RequestQueues, StaticScheduler

MAX_MODEL_LEN = 12
EOS = frozenset({7})
NO_EOS: frozenset[int] = frozenset()
CHOICES: dict[str, dict[str, Any]] = {
    "paged": {},
    "paged-tight-recompute": {"num_blocks": 8, "max_num_batched_tokens": 5},
    "paged-tight-swap": {"num_blocks": 8, "preemption": "swap", "max_num_batched_tokens": 7},
    "paged-prefill-first": {"num_blocks": 9, "scheduling": "prefill_first", "paged_attention": "gather"},
    "continuous": {"max_num_batched_tokens": 4},
    "static": {},
    "none": {},
}
"""Ways to run: some without trouble, some that must take blocks back."""


def answer_alone(next_logits, prompt, params, eos_token_ids, max_model_len, *, seed=0, index=0):
    """What one sample gets when a plain loop runs it."""
    output: list[int] = []
    while True:
        context = SampleContext(params, seed, index, prompt, output, eos_token_ids)
        output = [*output, sample_token(next_logits([*prompt, *output]), context)]
        end = finish(
            token_id=output[-1],
            num_output_tokens=len(output),
            num_tokens=len(prompt) + len(output),
            params=params,
            eos_token_ids=eos_token_ids,
            max_model_len=max_model_len,
        )
        if end is not None:
            return output, end.reason


def chain_row(token_ids):
    """The next logits of the model that is none."""
    return chain_logits(chain(token_ids))[-1]


class PlantedFailure(RuntimeError):
    """Raised where a test says so, as torch raises."""


class FailingRunner(ChainRunner):
    """Fails once where it is told: before anything, in the middle of the rows, or by logits that are no numbers."""

    failure: str | None = None

    def prepare(self, operations):
        if self.failure == "prepare":
            self.failure = None
            raise PlantedFailure
        super().prepare(operations)

    def execute(self, rows):
        failure, self.failure = self.failure, None
        if failure == "begin":
            raise PlantedFailure
        if failure == "middle":
            super().execute(rows[: len(rows) // 2])
            raise PlantedFailure
        logits = super().execute(rows)
        if failure == "end":
            raise PlantedFailure
        return [own * float("nan") for own in logits] if failure == "nan" else logits


params = st.builds(
    SamplingParams,
    n=st.integers(1, 3),
    max_tokens=st.none() | st.integers(1, 6),
    ignore_eos=st.booleans(),
    temperature=st.sampled_from([0.0, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.5]),
    prompt_logprobs=st.none() | st.just(1),
    logprobs=st.none() | st.just(2),
)


class EngineLife(RuleBasedStateMachine):
    """Requests come, run, fail and are aborted; whatever happens, each gets what it would get alone."""

    @initialize(
        cache=st.sampled_from(["static", "continuous", "paged", "paged"]),
        max_num_seqs=st.integers(1, 4),
        budget=st.integers(1, 9),
        is_prefill_first=st.booleans(),
        preempts_by_swap=st.booleans(),
        block_size=st.integers(1, 4),
        num_spare_blocks=st.integers(0, 8),
        enable_prefix_caching=st.booleans(),
    )
    def start(  # noqa: PLR0917 - Hypothesis passes them by name
        self,
        cache,
        max_num_seqs,
        budget,
        is_prefill_first,
        preempts_by_swap,
        block_size,
        num_spare_blocks,
        enable_prefix_caching,
    ):
        num_blocks = -(-MAX_MODEL_LEN // block_size) + num_spare_blocks if cache == "paged" else 0
        space = None
        if num_blocks:
            space = BlockSpace(
                num_blocks, block_size, enable_prefix_caching=enable_prefix_caching, num_swap_blocks=num_blocks // 2
            )
        scheduler: RequestQueues = StaticScheduler(max_num_seqs)
        if cache != "static":
            scheduler = ContinuousScheduler(
                max_num_seqs,
                budget,
                blocks=space,
                is_prefill_first=is_prefill_first,
                preempts_by_swap=preempts_by_swap,
            )
        self.max_num_seqs = max_num_seqs
        self.runner = FailingRunner(num_blocks, block_size)
        self.core = EngineCore(scheduler, self.runner, eos_token_ids=EOS, max_model_len=MAX_MODEL_LEN)
        self.arrived = []

    @rule(prompt=st.lists(st.integers(0, 2), min_size=1, max_size=MAX_MODEL_LEN - 1), params=params)
    def add(self, prompt, params):
        number = len(self.arrived)
        for state in make_states(Request(str(number), None, tuple(prompt), params, seed=number)):
            self.arrived.append((state, self.core.add(state)))

    @rule()
    def step(self):
        before = {state: state.num_tokens for state, _ in self.arrived}
        for row in self.core.step():
            assert row.state.num_tokens == before[row.state] + len(row.token_ids), "a token each"

    @rule(failure=st.sampled_from(["prepare", "begin", "middle", "end", "nan"]))
    def fail(self, failure):
        before = self.snapshot()
        self.runner.failure = failure
        try:
            self.core.step()
        except (PlantedFailure, InvariantError):
            assert self.snapshot() == before, "a step that raises leaves every request where it was"
        self.runner.failure = None

    def snapshot(self):
        return [(list(state.token_ids), state.finish_reason, answer.output()) for state, answer in self.arrived]

    @precondition(lambda self: self.core.answers)
    @rule(choice=st.integers(0, 99))
    def abort(self, choice):
        states = list(self.core.answers)
        self.core.abort(states[choice % len(states)])

    @invariant()
    def state_is_sound(self):
        check_core(self.core, max_num_seqs=self.max_num_seqs)

    def teardown(self):
        """Everyone ends with what a plain loop gives; who was aborted has the beginning of it."""
        if not hasattr(self, "arrived"):
            return
        while self.core.has_unfinished_requests():
            self.core.step()
        check_drained(self.core)
        for state, answer in self.arrived:
            request = state.request
            expected, reason = answer_alone(
                chain_row,
                list(request.prompt_token_ids),
                request.params,
                EOS,
                MAX_MODEL_LEN,
                seed=request.seed,
                index=state.sample_index,
            )
            output = answer.output()
            if state.finish_reason is FinishReason.ABORT:
                assert output.token_ids == expected[: len(output.token_ids)]
            else:
                assert (output.token_ids, state.finish_reason) == (expected, reason)
                has_all = answer.prompt_logprobs is None or state.sample_index > 0
                assert has_all or len(answer.prompt_logprobs) == state.num_prompt_tokens


EngineLife.TestCase.settings = settings(
    deadline=None, max_examples=settings().max_examples // 2, stateful_step_count=20
)
TestEngineLife = EngineLife.TestCase


def greedy_logits(model, token_ids):
    """The next logits of a request that runs alone and from nothing."""
    length = len(token_ids)
    view = CausalAttentionView([length])
    return model.forward(torch.tensor(token_ids), torch.arange(length), view, [length - 1])[0].numpy()


real_requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, 28), min_size=1, max_size=9),
        st.builds(SamplingParams, max_tokens=st.integers(1, 7), ignore_eos=st.booleans()),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.usefixtures("_without_shape_checks")
@settings(deadline=None, max_examples=max(5, settings().max_examples // 10))
@given(members=real_requests, max_num_seqs=st.integers(1, 4), eos=st.frozensets(st.integers(0, 28), max_size=8))
@pytest.mark.parametrize("way", CHOICES)
def test_mixed_batch_equals_singleton_token_ids(  # noqa: PLR0917 - Hypothesis passes them by name
    model, new_core, states_of, way, members, max_num_seqs, eos
):
    """With early ends: many ids end a request, and a row that has ended stays or leaves with its mode."""
    core = new_core(
        way.partition("-")[0], eos_token_ids=eos, max_model_len=14, max_num_seqs=max_num_seqs, **CHOICES[way]
    )
    states = [states_of(prompt, params)[0] for prompt, params in members]
    for state in states:
        core.add(state)
    while core.has_unfinished_requests():
        core.step()
    check_drained(core)
    for state, (prompt, params) in zip(states, members, strict=True):
        expected = answer_alone(lambda token_ids: greedy_logits(model, token_ids), prompt, params, eos, 14)
        assert (state.output_token_ids, state.finish_reason) == expected


def new_run(new_core, states_of, way):
    """Four requests, some of several samples, some drawn, of which some end early."""
    core = new_core(way.partition("-")[0], max_num_seqs=4, **CHOICES[way])
    members = [
        ([1, 2, 3, 4, 5], SamplingParams(max_tokens=7, n=2, prompt_logprobs=1)),
        ([4], SamplingParams(max_tokens=9, temperature=1.0, logprobs=1)),
        ([1, 2, 3, 4, 5, 7, 8, 9], SamplingParams(max_tokens=6)),
        ([10, 11], SamplingParams(max_tokens=2)),
    ]
    runs = []
    for number, (prompt, params) in enumerate(members):
        runs += [(state, core.add(state)) for state in states_of(prompt, params, str(number), seed=number)]
    return core, runs


def drain(core, runs):
    for _ in range(300):
        if not core.has_unfinished_requests():
            break
        core.step()
    check_drained(core)
    return [(answer.output(), answer.prompt_logprobs) for _, answer in runs]


@pytest.fixture(scope="module")
def undisturbed(new_core, states_of):
    """What each way gives when nothing happens, and in how many steps: made once."""
    found = {}

    def outputs(way):
        if way not in found:
            core, runs = new_run(new_core, states_of, way)
            expected = drain(core, runs)
            stats = core.stats()
            assert stats.num_preemptions > 0 or "tight" not in way, "blocks had to be taken back"
            found[way] = expected, stats.num_steps
        return found[way]

    return outputs


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize("way", CHOICES)
def test_step_that_fails_anywhere_does_not_change_outputs(model, new_core, states_of, undisturbed, failing, way):
    """In steps from the first to the last; `EngineLife` tries every place, in far more lives."""
    expected, num_steps = undisturbed(way)
    for pass_number in range(1, num_steps + 1, 3):
        core, runs = new_run(new_core, states_of, way)
        with failing(model, pass_number) as passes:
            while core.has_unfinished_requests() and passes[0] < pass_number:
                before = [list(state.token_ids) for state, _ in runs]
                try:
                    core.step()
                except RuntimeError:
                    assert [state.token_ids for state, _ in runs] == before
                    check_core(core)
        assert passes[0] == pass_number, "the failure has happened"
        assert drain(core, runs) == expected


@pytest.mark.parametrize("way", CHOICES)
def test_logits_that_are_not_numbers_do_not_part_cache_and_request(model, new_core, states_of, undisturbed, way):
    expected, num_steps = undisturbed(way)
    core, runs = new_run(new_core, states_of, way)
    for _ in range(num_steps):
        handle = model.get_submodule("lm_head").register_forward_hook(lambda _, __, logits: logits * float("nan"))
        before = [list(state.token_ids) for state, _ in runs]
        try:
            with pytest.raises(InvariantError, match="NaN") as caught:
                core.step()
            assert caught.value.request_id in {"0", "1", "2", "3"}, "so that the caller knows whom to abort"
        except pytest.fail.Exception:
            assert [state.token_ids for state, _ in runs] == before, "a step whose logits nobody read"
        finally:
            handle.remove()
        check_core(core)
        core.step()
    assert drain(core, runs) == expected


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize("way", CHOICES)
def test_abort_at_any_time_does_not_change_the_others(new_core, states_of, undisturbed, way):
    expected, num_steps = undisturbed(way)
    for when in range(0, num_steps, 3):
        for whom in (0, 3):
            core, runs = new_run(new_core, states_of, way)
            for _ in range(when):
                core.step()
            state, answer = runs[whom]
            if not state.is_finished:
                core.abort(state)
                assert answer.output().finish_reason == "abort"
            check_core(core)
            outputs = drain(core, runs)
            assert outputs[whom][0].token_ids == expected[whom][0].token_ids[: len(outputs[whom][0].token_ids)]
            others = [place for place in range(len(runs)) if place != whom]
            assert [outputs[place][0] for place in others] == [expected[place][0] for place in others]


def test_request_that_was_swapped_out_and_aborted_leaves_host_memory_at_once(new_core, states_of):
    core, runs = new_run(new_core, states_of, "paged-tight-swap")
    while not core.runner.num_swapped_requests:
        core.step()
    for state, _ in runs:
        if not state.is_finished:
            core.abort(state)
    check_drained(core)


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize("way", CHOICES)
def test_runs_over_one_model_never_disturb_each_other(new_core, states_of, undisturbed, way):
    """Steps of two runs in turn: all state of a run is its own."""
    expected, _ = undisturbed(way)
    first, second = (new_run(new_core, states_of, way) for _ in range(2))
    first[0].step()
    while first[0].has_unfinished_requests() or second[0].has_unfinished_requests():
        for core, _ in (second, first):
            if core.has_unfinished_requests():
                core.step()
    assert drain(*first) == drain(*second) == expected


def test_request_that_no_token_is_left_for_is_named_and_others_go_on_without_it(new_core, states_of):
    """With all but one id masked by its bias and that one by `min_tokens`, nothing can be chosen."""
    core = new_core("continuous", eos_token_ids={3})
    (bad,) = states_of([1], SamplingParams(min_tokens=2, logit_bias={3: 1.0}, max_tokens=4), "bad")
    (good,) = states_of([2], SamplingParams(max_tokens=2), "good")
    for state in (good, bad):
        core.add(state)
    runner = core.runner
    only_eos = torch.full((29,), -float("inf"), dtype=torch.float64)
    only_eos[3] = 0
    execute = runner.execute
    runner.execute = lambda rows: [
        only_eos[None].numpy() if row.state is bad else own for row, own in zip(rows, execute(rows), strict=True)
    ]
    with pytest.raises(NoTokenLeftError) as caught:
        core.step()
    assert caught.value.request_id == "bad"
    assert caught.value.__notes__ == ["It is request 'bad'; abort it, and the others go on."]
    core.abort(bad)
    while core.has_unfinished_requests():
        core.step()
    assert good.num_output_tokens == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_operation_that_fails_is_tried_again_and_no_other_twice(monkeypatch, place):
    """Of a swapped request's blocks, the second copy would be of what has been forgotten."""
    space = BlockSpace(3, 4, enable_prefix_caching=False, num_swap_blocks=3)
    scheduler = ContinuousScheduler(2, 99, blocks=space, preempts_by_swap=True)
    runner = FailingRunner(3, 4)
    core = EngineCore(scheduler, runner, eos_token_ids=NO_EOS, max_model_len=12)
    done: list[object] = []
    prepare = runner.prepare

    def fail_once(operations):
        if len(done) == place:
            done.append("failed")
            raise PlantedFailure
        prepare(operations)
        done.extend(operations)

    states = [make_states(Request(str(n), None, (n,) * 4, SamplingParams(max_tokens=4), 0))[0] for n in range(2)]
    for state in states:
        core.add(state)
    core.step()
    monkeypatch.setattr(runner, "prepare", fail_once)
    for _ in range(30):
        try:
            core.step()
        except PlantedFailure:
            check_core(core)
    assert "failed" in done
    operations = [operation for operation in done if operation != "failed"]
    assert len(set(map(id, operations))) == len(operations) > 2
    check_drained(core)
    for state in states:
        expected, _ = answer_alone(chain_row, [*state.request.prompt_token_ids], state.request.params, NO_EOS, 12)
        assert state.output_token_ids == expected


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_preemption_in_the_middle_of_a_prompt_does_not_change_its_logprobs(new_core, states_of, enable_prefix_caching):
    """What was looked up once is neither given twice nor left out when the tokens run again."""
    found = []
    for num_steps in (0, 1, 2, 3):
        core = new_core("paged", max_num_batched_tokens=3, enable_prefix_caching=enable_prefix_caching)
        (state,) = states_of(range(11), SamplingParams(max_tokens=2, prompt_logprobs=1))
        answer = core.add(state)
        for _ in range(num_steps):
            core.step()
        if num_steps:
            core.scheduler.preempt(state, by_swap=False)
        while core.has_unfinished_requests():
            core.step()
        found.append(answer.prompt_logprobs)
    assert [len(logprobs) for logprobs in found] == [11] * 4
    assert found == [found[0]] * 4


def test_core_without_requests_has_nothing_to_do(new_core, cache):
    core = new_core(cache)
    assert not core.has_unfinished_requests()
    assert core.step() == []
    check_drained(core)


def test_vocabulary_of_the_chain_holds_what_ends_it():
    assert max(EOS) < VOCAB_SIZE

"""Real scheduling over the symbolic model: all modes give what requests give alone, and planted bugs show at once."""

from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings

from oracle.choosers import RandomChooser
from oracle.engine_spec import EngineSpec
from oracle.errors import CheckFailed, InvariantViolation
from oracle.faults.schedule_hunt import run_watched
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_run import ModeReport, _run_one
from oracle.schedule_strategies import choose_symbolic_schedule, symbolic_schedules
from oracle.schedule_witness import SPECULATIVE_FEATURES, WitnessTable
from oracle.symbolic_check import SYMBOLIC_MODES, check_published, run_symbolic, run_with_effects
from refinfer.cache.prefix import PrefixMap
from refinfer.engine.core import EngineCore
from refinfer.sampling import sampler
from refinfer.scheduler import BlockSpace, RequestQueues, SwapIn

# Tens of thousands of small calls; `without_shape_checks` is the marker for it where that exists.
pytestmark = pytest.mark.without_shape_checks

NUM_SCHEDULES = 200
"""Of each mode; so many for each property of schedules, here and in `tests/differential`."""


@pytest.mark.parametrize("mode", SYMBOLIC_MODES)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(scenario=symbolic_schedules())
def test_symbolic_schedules_equal_their_requests_alone(mode, scenario):
    run_with_effects(scenario, mode)


@pytest.mark.parametrize("mode", ["paged", "continuous"])
def test_many_symbolic_schedules_equal_their_requests_alone(mode):
    choose = RandomChooser(1)
    for _ in range(NUM_SCHEDULES):
        run_symbolic(choose_symbolic_schedule(choose), mode)


@pytest.mark.parametrize("is_speculative", [False, True])
def test_state_holds_around_every_step_of_many_schedules(is_speculative):
    choose = RandomChooser(3)
    steps = [
        run_watched(choose_symbolic_schedule(choose, is_speculative=is_speculative)).num_steps
        for _ in range(NUM_SCHEDULES)
    ]
    assert sum(steps) > 1000


def test_positions_past_65536_are_right():
    """Two long prompts with one beginning, in blocks of 64: the second finds the first one's."""
    prompt = tuple(place % 13 for place in range(65_600))
    engine = Scenario(((RequestSpec((0,))),)).engine
    engine = type(engine)(block_size=64, max_num_batched_tokens=50_000, enable_prefix_caching=True)
    requests = (RequestSpec(prompt, 2, ignore_eos=True), RequestSpec((*prompt, 1), 2, ignore_eos=True, arrival=3))
    scenario = Scenario(requests, checkpoint=None, is_symbolic=True, engine=engine)
    drive = run_symbolic(scenario, "paged")
    assert drive.driven[0].is_split
    assert drive.driven[1].states[0].num_cached_tokens > 65_536


_try_reserve, _swap_in, _match, _publish = (
    BlockSpace.try_reserve,
    BlockSpace._swap_in,
    PrefixMap.match,
    PrefixMap.publish,
)
_preempt, _draw_uniform, _step = RequestQueues.preempt, sampler.draw_uniform, EngineCore.step


def without_copy(self, state, num_tokens):
    with mock.patch.object(type(self.pool), "ref_count", return_value=1):
        return _try_reserve(self, state, num_tokens)


def swapped_in_backwards(self, state, held):
    is_done = _swap_in(self, state, held)
    if is_done:
        operation = self._operations[-1]
        assert isinstance(operation, SwapIn)
        self._operations[-1] = SwapIn(operation.state, operation.block_ids[::-1])
    return is_done


def match_of_any_salt(self, token_ids, salt, max_tokens):  # noqa: ARG001
    return _match(self, token_ids, None, max_tokens)


def publish_without_salt(self, token_ids, block_ids, num_computed_tokens, salt, cursor=None):  # noqa: ARG001
    _publish(self, token_ids, block_ids, num_computed_tokens, None, cursor)


def preempt_that_keeps_computed_tokens(self, state, *, by_swap):
    num_computed_tokens = state.num_computed_tokens
    how = _preempt(self, state, by_swap=by_swap)
    state.num_computed_tokens = num_computed_tokens
    return how


class StepCounter:
    """Draws by the number of the engine's step instead of the token's place."""

    number = 0

    @classmethod
    def step(cls, core):
        cls.number = core._counters.num_schedules + 1
        try:
            return _step(core)
        finally:
            cls.number = 0

    @classmethod
    def draw(cls, seed, sample_index, position):
        return _draw_uniform(seed, sample_index, cls.number + 1000 if cls.number else position)


def step_that_is_counted(self):
    return StepCounter.step(self)


BUGS: dict[str, tuple[str, list[tuple[Any, str, Any]]]] = {
    "copy_skipped": ("paged", [(BlockSpace, "try_reserve", without_copy)]),
    "swap_restores_wrong_block": ("paged", [(BlockSpace, "_swap_in", swapped_in_backwards)]),
    "salt_ignored": (
        "paged",
        [(PrefixMap, "match", match_of_any_salt), (PrefixMap, "publish", publish_without_salt)],
    ),
    "computed_tokens_kept": ("continuous", [(RequestQueues, "preempt", preempt_that_keeps_computed_tokens)]),
    "draws_by_step": (
        "paged",
        [
            (EngineCore, "step", step_that_is_counted),
            (sampler, "draw_uniform", StepCounter.draw),
        ],
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught_on_a_small_schedule(name):
    mode, replacements = BUGS[name]
    choose, report = RandomChooser(1), ModeReport(mode)
    patches = [mock.patch.object(*replacement) for replacement in replacements]
    for patch in patches:
        patch.start()
    try:
        for _ in range(60):
            _run_one(choose_symbolic_schedule(choose), run_symbolic_with_no_effects, report)
            if report.failure is not None:
                break
    finally:
        for patch in patches:
            patch.stop()
    assert report.failure is not None
    scenario = report.failure.scenario
    assert scenario is not None
    assert len(scenario.requests) <= 2
    assert sum(len(request.prompt_token_ids) for request in scenario.requests) <= 10
    assert len(scenario.script) <= 3
    run_symbolic(scenario, mode)  # without the bug the same schedule passes


def run_symbolic_with_no_effects(scenario, mode):
    return run_symbolic(scenario, mode), set()


def test_an_error_of_the_engine_is_a_failed_check():
    scenario = Scenario((RequestSpec((0,)),), checkpoint=None, is_symbolic=True)
    with (
        mock.patch.object(RequestQueues, "advance", side_effect=KeyError("x")),
        pytest.raises(CheckFailed, match="KeyError"),
    ):
        run_symbolic(scenario, "paged")


@pytest.mark.parametrize("mode", ["paged", "continuous"])
def test_many_schedules_with_guesses_equal_their_requests_alone(mode):
    choose, table = RandomChooser(2), WitnessTable()
    for _ in range(NUM_SCHEDULES):
        table.see(*run_with_effects(choose_symbolic_schedule(choose, is_speculative=True), mode))
    assert mode != "paged" or not table.missing(SPECULATIVE_FEATURES)


def published(**engine):
    """A run of two requests of which blocks of two tokens stay in the prefix cache."""
    scenario = Scenario(
        (RequestSpec((1, 2, 3, 0, 1), 4, ignore_eos=True), RequestSpec((2, 2, 2), 3, ignore_eos=True, cache_salt="s")),
        checkpoint=None,
        is_symbolic=True,
        engine=EngineSpec(block_size=2, **engine),
    )
    return run_symbolic(scenario, "paged")


@pytest.mark.parametrize(("place", "num_tokens"), [(0, 8), (1, 4)])
def test_wrong_value_in_a_published_block_is_named(place, num_tokens):
    """Where nobody comes to read it, no answer shows it."""
    drive = published(enable_prefix_caching=True)
    check_published(drive)
    (state,) = drive.driven[place].states
    block_ids, found = drive.core.scheduler.blocks.prefix.match(
        state.token_ids, state.request.cache_salt, state.num_tokens
    )
    assert found == num_tokens
    drive.core.runner._store.values[block_ids[-1] * 2 + 1] = b"wrong"
    message = rf"blocks \[{', '.join(map(str, block_ids))}\] are found by the first {num_tokens} .* request {place}, "
    with pytest.raises(InvariantViolation, match=message) as caught:
        check_published(drive)
    assert caught.value.block_ids == block_ids


def test_what_nobody_can_find_is_not_checked():
    drive = published()
    drive.core.runner._store.values[:] = [b"wrong"] * len(drive.core.runner._store.values)
    check_published(drive)
    check_published(published_in_continuous_mode())


def published_in_continuous_mode():
    return run_symbolic(Scenario((RequestSpec((0,)),), checkpoint=None, is_symbolic=True), "continuous")

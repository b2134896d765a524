"""A watch sees what a step decides against its promises, and what no single step shows."""

import pytest

from oracle.chain_runner import ChainRunner
from oracle.errors import InvariantViolation
from oracle.faults import FAULTS
from oracle.state_watch import StateWatch
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import make_states
from refinfer.sampling import SamplingParams
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request

pytestmark = pytest.mark.without_shape_checks

PARAMS = SamplingParams(max_tokens=6, ignore_eos=True)


def watched(num_blocks=6, **options):
    space = BlockSpace(num_blocks, 2, num_swap_blocks=4)
    scheduler = ContinuousScheduler(4, 16, blocks=space, **options)
    core = EngineCore(scheduler, ChainRunner(num_blocks, 2), eos_token_ids=frozenset(), max_model_len=12)
    StateWatch(core, max_num_seqs=4, token_budget=16, max_model_len=12)
    return core


def add(core, *token_ids):
    (state,) = make_states(Request(str(len(core.answers)), None, token_ids, PARAMS))
    core.add(state)
    return state


def drain(core):
    while core.has_unfinished_requests():
        core.step()


def test_sound_run_is_let_pass():
    core = watched(is_prefill_first=True)
    states = [add(core, 1, 2, 3), add(core, 1, 2, 3, 4), add(core, 5)]
    drain(core)
    assert core.stats().num_preemptions
    assert [state.num_output_tokens for state in states] == [6, 6, 6]


def test_admission_without_room_for_all_known_tokens_is_seen():
    def busy():
        core = watched()
        add(core, 1, 2, 3, 4, 5, 6)
        core.step()
        add(core, 7, 8, 9, 10, 11, 12)
        return core

    drain(busy())
    with (
        FAULTS["admitted_for_its_first_block"].planted(),
        pytest.raises(InvariantViolation, match="came in with 0 blocks, needs 3 more for its 6 tokens, and 2 can be"),
    ):
        drain(busy())


def test_cached_tokens_that_change_after_a_preemption_are_seen():
    def come_back(core):
        state = add(core, 1, 2, 3, 4, 5)
        core.step()
        core.scheduler.preempt(state, by_swap=False)
        drain(core)
        return state

    state = come_back(watched())
    assert (state.num_preemptions, state.num_cached_tokens) == (1, 0)
    with (
        FAULTS["resume_counts_as_hit"].planted(),
        pytest.raises(InvariantViolation, match="has 4 cached tokens, and had 0 when it first came in"),
    ):
        come_back(watched())


def test_victim_that_is_scheduled_all_the_same_is_seen():
    """The newest is scheduled first, since it has a prompt to run, and loses its blocks to those that decode."""

    def crowded():
        core = watched(num_blocks=7, is_prefill_first=True)
        add(core, 1)
        add(core, 2)
        for _ in range(4):
            core.step()
        add(core, 3, 4, 5)
        return core

    core = crowded()
    drain(core)
    assert core.stats().num_preemptions
    with (
        FAULTS["victim_stays_scheduled"].planted(),
        pytest.raises(InvariantViolation, match="request 2, sample 0, is to run, and is preempted"),
    ):
        drain(crowded())

"""Each invariant is seen to fire on a state that was spoilt by hand, and none on a sound one."""

from dataclasses import replace

import pytest

from oracle.chain_runner import ChainRunner
from oracle.errors import InvariantViolation
from oracle.invariants import check_core, check_drained, check_output, check_queues
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import make_states
from refinfer.sampling import SamplingParams
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request, RequestStatus, ScheduledRow, SchedulerOutput
from refinfer.scheduler.request import held_blocks


@pytest.fixture
def core():
    """Two requests that run and share a block, one that was swapped out, and one that waits."""
    space = BlockSpace(8, 2, num_swap_blocks=8)
    scheduler = ContinuousScheduler(3, 20, blocks=space)
    core = EngineCore(scheduler, ChainRunner(8, 2), eos_token_ids=frozenset(), max_model_len=12)
    for name, prompt in (("a", (1, 2, 3)), ("b", (1, 2, 4)), ("c", (5, 6, 7)), ("d", (1,))):
        core.add(make_states(Request(name, None, prompt, SamplingParams()))[0])
        if name == "a":
            core.step()
    core.step()
    scheduler.preempt(scheduler.running[-1], by_swap=True)
    return core


def held(core, place):
    return held_blocks(core.scheduler.running[place])


def finish_by_hand(core):
    core.scheduler.waiting[-1].status = RequestStatus.FINISHED


SPOILS = {
    "held-twice": (lambda core: core.scheduler.blocks.pool.hold([held(core, 0).table.block_ids[0]]), "references"),
    "leaked": (lambda core: core.scheduler.blocks.pool.allocate(1), "references"),
    "lost-from-a-table": (lambda core: held(core, 0).table.block_ids.pop(), "references"),
    "pin-lost": (
        lambda core: core.scheduler.blocks.pool.unpin(held(core, 0).table.block_ids[0]),
        "are published and",
    ),
    "pool-count": (lambda core: core.scheduler.blocks.pool._free.pop(), "does not add up"),
    "other-tokens-in-a-shared-block": (
        lambda core: core.scheduler.running[1].token_ids.__setitem__(0, 6),
        "whose tokens differ",
    ),
    "shared-before-it-is-computed": (
        lambda core: setattr(core.scheduler.running[1], "num_computed_tokens", 0),
        "not computed for both",
    ),
    "more-computed-than-known": (
        lambda core: setattr(core.scheduler.running[0], "num_computed_tokens", 5),
        "none runs",
    ),
    "waits-with-computed-tokens": (
        lambda core: (
            setattr(core.scheduler.waiting[-1], "num_computed_tokens", 0),  # type: ignore[func-returns-value]
            core.scheduler.waiting[-1].token_ids.append(1),
            setattr(core.scheduler.waiting[-1], "num_computed_tokens", 1),  # type: ignore[func-returns-value]
        ),
        "that are nowhere",
    ),
    "waits-with-blocks": (
        lambda core: held_blocks(core.scheduler.waiting[-1]).table.append(core.scheduler.blocks.pool.allocate(1)),
        "waits and holds blocks",
    ),
    "swapped-count": (lambda core: setattr(core.scheduler.blocks, "num_swapped_blocks", 9), "are counted"),
    "swapped-blocks-lost": (
        lambda core: (
            setattr(core.scheduler.blocks, "num_swapped_blocks", 1),  # type: ignore[func-returns-value]
            setattr(held_blocks(core.scheduler.waiting[0]), "num_swapped_blocks", 1),  # type: ignore[func-returns-value]
        ),
        "swapped out, needing",
    ),
    "ended-and-waits": (finish_by_hand, "among those that wait and is finished"),
    "waits-and-runs": (lambda core: core.scheduler.running.append(core.scheduler.waiting[0]), "twice"),
    "running-status": (
        lambda core: setattr(core.scheduler.running[0], "status", RequestStatus.WAITING),
        "among those that run and is waiting",
    ),
    "overtaken": (lambda core: core.scheduler.running.reverse(), "arrived in the order"),
    "preempted-behind": (lambda core: core.scheduler.waiting.reverse(), "never ran waits before"),
    "forgotten": (lambda core: core.scheduler.waiting.pop(), "arrived in the order"),
    "reserved-too-much": (
        lambda core: held(core, 0).table.append(core.scheduler.blocks.pool.allocate(2)),
        "what is known",
    ),
}


def test_sound_state_violates_nothing(core):
    check_core(core, max_num_seqs=3)
    assert len(core.scheduler.running) == 2
    assert held(core, 0).table.block_ids[0] == held(core, 1).table.block_ids[0], "a block is shared"


@pytest.mark.parametrize(("spoil", "match"), SPOILS.values(), ids=SPOILS.keys())
def test_spoilt_state_is_seen(core, spoil, match):
    spoil(core)
    with pytest.raises(InvariantViolation, match=match):
        check_core(core)


def test_more_requests_than_may_run_are_seen(core):
    with pytest.raises(InvariantViolation, match="2 requests run, where 1 may"):
        check_queues(core.scheduler, max_num_seqs=1)


@pytest.mark.parametrize(
    ("limits", "counts", "match"),
    [
        ((1, None), (1, 1), "run in one step, where 1 may"),
        ((3, 1), (1, 1), "2 tokens run in one step, where 1 may"),
        ((3, None), (0, 1), "is to run 0 tokens"),
        ((3, None), (2, 1), "is to run 2 tokens"),
    ],
)
def test_step_beyond_a_limit_is_seen(core, limits, counts, match):
    states = core.scheduler.running
    rows = tuple(ScheduledRow.of(state, count) for state, count in zip(states, counts, strict=True))
    with pytest.raises(InvariantViolation, match=match):
        check_output(SchedulerOutput(rows), core.scheduler, *limits)


def test_blocks_for_a_guess_violate_nothing_as_long_as_it_stands(core):
    """A step that failed leaves them until the next guess is made; once that is gone, they are too many."""
    state = core.scheduler.running[0]
    core.scheduler.propose(state, (1, 1))
    held(core, 0).table.append(core.scheduler.blocks.pool.allocate(2))
    check_core(core)
    state.draft_token_ids = ()
    with pytest.raises(InvariantViolation, match=r"holds 4 blocks; .* what is known or guessed 3"):
        check_core(core)


@pytest.mark.parametrize(
    ("num_scheduled", "drafted", "is_sound"),
    [(3, (7, 8), True), (2, (7,), True), (3, (7, 9), False), (3, (8,), False), (2, (7, 8), False)],
)
def test_row_that_verifies_what_was_not_guessed_or_skips_a_token_is_seen(core, num_scheduled, drafted, is_sound):
    state = core.scheduler.running[0]
    core.scheduler.propose(state, (7, 8))
    assert core.scheduler.look_ahead(state, 1, 2) == 2
    output = SchedulerOutput((ScheduledRow(state, num_scheduled, True, 1, drafted),))
    if is_sound:
        check_output(output, core.scheduler, 3, None)
        return
    with pytest.raises(InvariantViolation, match=r"is to (verify|run)"):
        check_output(output, core.scheduler, 3, None)


@pytest.mark.parametrize(
    ("max_model_len", "max_tokens", "limit"), [(7, 16, None), (5, 16, "max_model_len is 5"), (7, 3, "max_tokens is 3")]
)
def test_guess_as_far_as_the_last_token_is_seen(core, max_model_len, max_tokens, limit):
    """The pass emits one token after those that it verifies."""
    state = core.scheduler.running[0]
    assert (state.num_tokens, state.num_output_tokens) == (5, 2)
    state.request = replace(state.request, params=SamplingParams(max_tokens=max_tokens))
    core.scheduler.propose(state, (7,))
    assert core.scheduler.look_ahead(state, 1, 1) == 1
    output = SchedulerOutput((ScheduledRow(state, 2, True, 1, (7,)),))
    if limit is None:
        check_output(output, core.scheduler, 3, None, max_model_len)
        return
    with pytest.raises(InvariantViolation, match=rf"is to verify 1 guessed tokens up to \d; {limit}"):
        check_output(output, core.scheduler, 3, None, max_model_len)


def test_step_of_a_request_that_waits_is_seen(core):
    rows = (ScheduledRow.of(core.scheduler.waiting[-1], 1),)
    with pytest.raises(InvariantViolation, match="is to run, and is waiting"):
        check_output(SchedulerOutput(rows), core.scheduler, 3, None)


def test_row_that_emits_too_early_is_seen(core):
    rows = (ScheduledRow.of(core.scheduler.running[0], 1)._replace(emits=False),)
    with pytest.raises(InvariantViolation, match="and emits: False"):
        check_output(SchedulerOutput(rows), core.scheduler, 3, None)


def test_write_to_a_shared_block_and_past_a_table_are_seen(core):
    row = ScheduledRow.of(core.scheduler.running[1], 1)
    last = held(core, 1).table.block_ids[-1]
    core.scheduler.blocks.pool.hold([last])
    with pytest.raises(InvariantViolation, match=f"would write to block {last}, which others hold"):
        check_output(SchedulerOutput((row,)), core.scheduler, 3, None)
    held(core, 1).table.block_ids.pop()
    with pytest.raises(InvariantViolation, match="holds 1 blocks and needs 2"):
        check_output(SchedulerOutput((row,)), core.scheduler, 3, None)


def test_what_is_left_at_the_end_is_seen(core):
    with pytest.raises(InvariantViolation, match="all requests should have ended"):
        check_drained(core)
    for state in list(core.answers):
        core.abort(state)
    check_drained(core)
    core.runner._store.swapped_by_request[state] = []
    with pytest.raises(InvariantViolation, match="1 requests have blocks in host memory"):
        check_drained(core)

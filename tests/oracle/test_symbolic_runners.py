"""Symbolic runners keep values where the tables say, and raise where one is read that nobody wrote."""

import pytest

from oracle.errors import InvariantViolation
from oracle.symbolic import PrefixHash
from oracle.symbolic_runners import SymbolicContinuousRunner, SymbolicPagedRunner, SymbolicRecomputeRunner
from refinfer.sampling import SamplingParams
from refinfer.scheduler import (
    BlockSpace,
    CopyBlock,
    ForgetBlocks,
    Request,
    RequestState,
    RequestStatus,
    ScheduledRow,
    SwapIn,
    SwapOut,
)

TOKENS = (3, 1, 2, 1, 0)


def expected():
    prefix = PrefixHash()
    return [prefix.push(token_id, place) for place, token_id in enumerate(TOKENS)]


@pytest.fixture
def state():
    state = RequestState(Request("0", None, TOKENS, SamplingParams()))
    space = BlockSpace(8, 2, enable_prefix_caching=False)
    space.open(state)
    space.try_reserve(state, len(TOKENS))
    return state


@pytest.mark.parametrize(
    "runner", [SymbolicPagedRunner(8, 2), SymbolicContinuousRunner(), SymbolicRecomputeRunner()], ids=["p", "c", "r"]
)
def test_runners_write_the_same_values_in_chunks(runner, state):
    state.move_to(RequestStatus.RUNNING)
    for number in (2, 1, 2):
        runner.execute([ScheduledRow(state, number, False, 0)])
        state.num_computed_tokens += number
    assert {value for _, _, value in runner.written} == set(expected())


@pytest.mark.parametrize("runner", [SymbolicPagedRunner(8, 2), SymbolicContinuousRunner()], ids=["p", "c"])
def test_reading_what_nobody_wrote_raises(runner, state):
    state.num_computed_tokens = 2
    with pytest.raises(InvariantViolation, match="nobody has written"):
        runner.execute([ScheduledRow(state, 1, False, 0)])


def test_blocks_are_copied_swapped_and_forgotten(state):
    runner = SymbolicPagedRunner(8, 2)
    runner.execute([ScheduledRow(state, 4, False, 0)])
    first, second = state.blocks.table.block_ids[:2]
    runner.prepare([SwapOut(state, (first, second)), ForgetBlocks((first, second))])
    assert runner.num_swapped_requests == 1
    runner.prepare([SwapIn(state, (6, 5)), CopyBlock(6, 7)])
    state.blocks.table.block_ids[:2] = [7, 5]
    state.num_computed_tokens = 4
    runner.execute([ScheduledRow(state, 1, False, 0)])
    assert runner.written[-1][2] == expected()[4]

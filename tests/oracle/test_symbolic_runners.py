"""Symbolic runners keep values where the tables say, and raise where one is read that nobody wrote."""

import pytest

from oracle.errors import InvariantViolation
from oracle.symbolic import PrefixHash, logits_of
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


def expected(token_ids=TOKENS):
    prefix = PrefixHash()
    return [prefix.push(token_id, place) for place, token_id in enumerate(token_ids)]


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


DRAFT = (9, 8)
CORRECTED = (*TOKENS, 2)


@pytest.fixture
def guessed(state):
    """A request of which three tokens are computed and two guessed, and the row that runs all that is left."""
    state.move_to(RequestStatus.RUNNING)
    state.blocks.table.append((6, 7))
    return state, ScheduledRow(state, 4, True, 3, DRAFT)


def values_of(runner, state, count):
    """What is kept of the first tokens of a request."""
    if isinstance(runner, SymbolicPagedRunner):
        return runner.values_in(state.blocks.table.block_ids)[:count]
    return runner._values_by_request[state][:count]


@pytest.mark.parametrize("runner_class", [SymbolicPagedRunner, SymbolicContinuousRunner], ids=["p", "c"])
def test_rejected_guesses_are_written_over_and_noted_of_nobody(runner_class, guessed):
    state, row = guessed
    runner = SymbolicPagedRunner(8, 2) if runner_class is SymbolicPagedRunner else SymbolicContinuousRunner()
    runner.execute([ScheduledRow(state, 3, False, 0)])
    state.num_computed_tokens = 3
    (logits,) = runner.execute([row])
    with_draft = expected((*TOKENS, *DRAFT))
    assert (logits == logits_of(with_draft[4:])).all(), "after the newest known token, and after each guessed one"
    assert values_of(runner, state, 7) == with_draft
    assert runner.written == [(state, place, value) for place, value in enumerate(expected())]
    state.append(CORRECTED[-1])
    state.num_computed_tokens = len(TOKENS)
    runner.execute([ScheduledRow(state, 1, True, 1)])
    assert values_of(runner, state, 6) == expected(CORRECTED)
    assert runner.written[-1] == (state, 5, expected(CORRECTED)[5])


def test_rejected_guess_that_counts_as_computed_changes_what_comes_after(guessed):
    """So that an answer shows it."""
    state, row = guessed
    runner = SymbolicPagedRunner(8, 2)
    runner.execute([ScheduledRow(state, 3, False, 0)])
    state.num_computed_tokens = 3
    runner.execute([row])
    state.token_ids += [2, 4]
    state.num_computed_tokens = 6
    runner.execute([ScheduledRow(state, 1, True, 1)])
    assert runner.written[-1][2] != expected((*CORRECTED, 4))[-1]


def test_values_in_blocks_come_in_the_order_of_the_blocks(state):
    runner = SymbolicPagedRunner(8, 2)
    runner.execute([ScheduledRow(state, 4, False, 0)])
    first, second = state.blocks.table.block_ids[:2]
    values = expected()
    assert runner.values_in([second, first]) == [*values[2:4], *values[:2]]

"""The runner without a model: its next token depends on every token before, and it refuses a wrong slot."""

import pytest

from oracle.chain_runner import VOCAB_SIZE, ChainRunner, chain, chain_logits
from oracle.errors import InvariantViolation
from refinfer.sampling import SamplingParams
from refinfer.scheduler import BlockSpace, ForgetBlocks, Request, RequestState, ScheduledRow
from refinfer.scheduler.request import held_blocks


def test_hash_changes_with_every_token_before_it_and_with_their_order():
    assert chain([1, 2, 3])[:2] == chain([1, 2])
    last = {chain(token_ids)[-1] for token_ids in ([1, 2, 3], [2, 1, 3], [1, 3], [0, 2, 3], [1, 2, 3, 3])}
    assert len(last) == 5


def test_logits_are_one_row_for_each_hash():
    logits = chain_logits(chain([1, 2, 3]))
    assert logits.shape == (3, VOCAB_SIZE)
    assert len({tuple(row) for row in logits.tolist()}) == 3
    assert chain_logits([]).shape == (0, VOCAB_SIZE)


@pytest.fixture
def running():
    """A request of which three tokens are computed, its runner and its blocks."""
    space, runner = BlockSpace(4, 2), ChainRunner(4, 2)
    state = RequestState(Request("a", None, (1, 2, 3), SamplingParams()))
    space.open(state)
    space.try_reserve(state, 3)
    runner.execute([ScheduledRow.of(state, 3)])
    state.num_computed_tokens = 3
    state.append(5)
    return state, runner


def test_chain_runner_gives_the_logits_after_the_newest_token(running):
    state, runner = running
    (logits,) = runner.execute([ScheduledRow.of(state, 1)])
    assert (logits == chain_logits(chain([1, 2, 3, 5]))[-1:]).all()


def test_chain_runner_refuses_a_slot_that_was_forgotten(running):
    state, runner = running
    runner.prepare([ForgetBlocks((held_blocks(state).table.block_ids[1],))])
    with pytest.raises(InvariantViolation, match=r"request a, sample 0, reads position 2 in slot \d, which holds None"):
        runner.execute([ScheduledRow.of(state, 1)])


def test_chain_runner_refuses_blocks_in_another_order(running):
    state, runner = running
    held_blocks(state).table.block_ids.reverse()
    with pytest.raises(InvariantViolation, match="reads position 0"):
        runner.execute([ScheduledRow.of(state, 1)])


@pytest.fixture
def guessed(running):
    """The same, after a step that ran the newest token and two guessed ones."""
    state, runner = running
    assert state.blocks is not None
    state.blocks.table.append((3,))
    (logits,) = runner.execute([ScheduledRow(state, 3, True, 3, (6, 7))])
    return state, runner, logits


def test_chain_runner_gives_the_logits_after_each_guessed_token(guessed):
    _, _, logits = guessed
    assert (logits == chain_logits(chain([1, 2, 3, 5, 6, 7]))[-3:]).all()


def test_chain_runner_writes_over_a_guess_that_was_rejected(guessed):
    state, runner, _ = guessed
    state.append(4)
    for num_computed_tokens, next_token_id in ((4, 0), (5, 2)):
        state.num_computed_tokens = num_computed_tokens
        (logits,) = runner.execute([ScheduledRow.of(state, 1)])
        assert (logits == chain_logits(chain(state.token_ids))[-1:]).all()
        state.append(next_token_id)


def test_chain_runner_refuses_a_rejected_guess_that_counts_as_computed(guessed):
    state, runner, _ = guessed
    state.append(4)
    state.append(0)
    state.num_computed_tokens = 5
    with pytest.raises(InvariantViolation, match=r"reads position 4 in slot \d"):
        runner.execute([ScheduledRow.of(state, 1)])

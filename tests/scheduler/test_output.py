"""What a step is told of each row."""

import pytest

from refinfer.sampling import FinishReason
from refinfer.scheduler import ScheduledRow, SchedulerOutput


@pytest.mark.parametrize(
    ("num_computed", "num_scheduled", "prompt_logprobs", "emits", "num_logits"),
    [
        (0, 3, None, True, 1),
        (0, 2, None, False, 0),
        (2, 1, None, True, 1),
        (1, 1, None, False, 0),
        (0, 2, 1, False, 2),
        (1, 2, 1, True, 2),
    ],
)
def test_row_wants_the_logits_that_somebody_reads(
    make_state, num_computed, num_scheduled, prompt_logprobs, emits, num_logits
):
    state = make_state(prompt=(1, 2, 3), prompt_logprobs=prompt_logprobs)
    state.num_computed_tokens = num_computed
    assert ScheduledRow.of(state, num_scheduled) == ScheduledRow(state, num_scheduled, emits, num_logits)


@pytest.mark.parametrize(
    ("num_scheduled", "token_ids", "emits", "num_logits", "drafted"),
    [
        (1, [2], False, 0, ()),
        (2, [2, 3], True, 1, ()),
        (3, [2, 3, 7], True, 2, (7,)),
        (4, [2, 3, 7, 8], True, 3, (7, 8)),
    ],
)
def test_row_runs_guessed_tokens_behind_the_known_ones_and_wants_the_logits_of_each(
    make_state, num_scheduled, token_ids, emits, num_logits, drafted
):
    """As many as found room; and of the newest known token, which the first guess is held against."""
    state = make_state(prompt=(1, 2, 3))
    state.num_computed_tokens = 1
    state.draft_token_ids = (7, 8)
    row = ScheduledRow.of(state, num_scheduled)
    assert row.token_ids == token_ids
    assert row == ScheduledRow(state, num_scheduled, emits, num_logits, drafted)


def test_row_that_has_ended_emits_nothing(make_state):
    state = make_state(prompt=(1, 2))
    state.finish(FinishReason.ABORT)
    assert not ScheduledRow.of(state, 2).emits


def test_output_counts_the_tokens_of_all_rows(make_state):
    rows = tuple(ScheduledRow.of(make_state(prompt=(1, 2, 3)), count) for count in (1, 3))
    assert SchedulerOutput(rows).num_scheduled_tokens == 4
    assert SchedulerOutput(()).num_scheduled_tokens == 0

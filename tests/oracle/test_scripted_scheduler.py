"""A script is followed while it lasts, and never does what no scheduler may do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.choosers import HypothesisChooser
from oracle.engine_spec import StepScript
from oracle.schedule_strategies import choose_script
from oracle.scripted_scheduler import ScriptedScheduler
from refinfer.sampling import FinishReason, SamplingParams
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request, RequestState

BUDGET = 5
MAX_SEQS = 3


def scheduler_of(script, num_tokens=(4, 3, 2, 1), num_blocks=20):
    scheduler = ScriptedScheduler(script, MAX_SEQS, BUDGET, blocks=BlockSpace(num_blocks, 2))
    for index, number in enumerate(num_tokens):
        scheduler.add(
            RequestState(Request(str(index), None, tuple(range(index, index + number)), SamplingParams(max_tokens=3)))
        )
    return scheduler


def ran(scheduler):
    output = scheduler.schedule()
    scheduler.advance(output.rows)
    return {row.state.request.request_id: row.num_scheduled_tokens for row in output.rows}, output


def test_caps_hold_back_and_pass_over():
    scheduler = scheduler_of([StepScript(admit=2, caps=(2, 1)), StepScript(caps=(0, 1), admit=0)])
    assert ran(scheduler)[0] == {"0": 2, "1": 1}
    assert ran(scheduler)[0] == {"1": 1}
    assert ran(scheduler)[0] == {"0": 2, "1": 1, "2": 2}


def test_preempted_requests_are_counted_from_the_newest():
    scheduler = scheduler_of([StepScript(admit=2), StepScript(recompute=(0,), admit=0)], (2, 2))
    ran(scheduler)
    _, output = ran(scheduler)
    assert [(state.request.request_id, how) for state, how in output.preempted] == [("1", "recompute")]
    (preemption,) = scheduler.preemptions
    assert (preemption.wanted_swap, preemption.num_lost_tokens) == (False, 2)


def test_rotation_changes_the_order_of_rows_only():
    plain, rotated = scheduler_of([]), scheduler_of([StepScript(rotation=1)])
    first, second = list(ran(plain)[0].items()), list(ran(rotated)[0].items())
    assert second == first[1:] + first[:1]


def test_without_a_script_the_shipped_policy_decides():
    plain = ContinuousScheduler(MAX_SEQS, BUDGET, blocks=BlockSpace(20, 2))
    for state in list(scheduler_of([]).waiting):
        state.blocks = None
        plain.add(state)
    assert ran(plain)[0] == ran(scheduler_of([StepScript()]))[0]


@given(data=st.data())
def test_no_script_breaks_the_limits(data):
    script = choose_script(HypothesisChooser(data.draw))
    scheduler = scheduler_of(script, num_blocks=4)
    for _ in range(200):
        if not scheduler.has_unfinished_requests():
            break
        output = scheduler.schedule()
        assert output.num_scheduled_tokens <= BUDGET
        assert len(scheduler.running) <= MAX_SEQS
        assert all(row.num_scheduled_tokens > 0 for row in output.rows)
        assert all(row.state in scheduler.running for row in output.rows)
        scheduler.advance(output.rows)
        scheduler.take_operations()
        for row in output.rows:
            if row.emits:
                scheduler.finish(row.state, FinishReason.LENGTH)
    assert not scheduler.has_unfinished_requests()


def guessing(script, num_requests=1, draft=(7, 8, 9)):
    """A scheduler whose requests have run their three prompt tokens, and are guessed for with the fourth to run."""
    scheduler = scheduler_of([StepScript(admit=num_requests, caps=(3, 3)), *script], (3,) * num_requests)
    while any(state.num_tokens == 3 for state in (*scheduler.running, *scheduler.waiting)):
        output = scheduler.schedule()
        scheduler.advance(output.rows)
        for row in output.rows:
            if row.emits:
                row.state.append(5)
    for state in scheduler.running:
        scheduler.propose(state, draft)
    return scheduler


@pytest.mark.parametrize(
    ("emitted", "num_rejected", "num_lost_blocks", "ends_inside"),
    [
        ((7, 8, 9, 1), 0, 0, False),
        ((7, 8, 1), 1, 1, False),
        ((7, 1), 2, 1, False),
        ((1,), 3, 2, False),
        ((7,), 3, 2, True),
        ((7, 8), 2, 1, True),
        ((7, 8, 9), 1, 1, True),
    ],
)
def test_passes_over_guessed_tokens_are_noted(emitted, num_rejected, num_lost_blocks, ends_inside):
    """Four tokens and three guessed ones lie in four blocks of two."""
    scheduler = guessing([])
    assert scheduler.verified == [], "a prompt is nothing that was guessed"
    (row,) = scheduler.schedule().rows
    assert (row.num_scheduled_tokens, row.draft_token_ids) == (4, (7, 8, 9))
    for token_id in emitted:
        row.state.append(token_id)
    scheduler.advance([row], [num_rejected])
    (own,) = scheduler.verified
    assert own == (row.state, 3, num_rejected, num_lost_blocks, 4 + len(emitted), ends_inside)
    assert row.state.num_computed_tokens == 7 - num_rejected


@pytest.mark.parametrize(
    ("step", "num_requests", "drafted"),
    [
        (StepScript(rotation=1), 1, [(7, 8, 9)]),
        (StepScript(caps=(2,)), 1, [(7,)]),
        (StepScript(caps=(3,)), 1, [(7, 8)]),
        (StepScript(caps=(9,)), 1, [(7, 8, 9)]),
        (StepScript(caps=(1,)), 1, [()]),
        (StepScript(caps=(0,)), 1, []),
        (StepScript(admit=0), 2, [(7, 8, 9), ()]),
        (StepScript(caps=(1,)), 2, [(), (7, 8, 9)]),
        (StepScript(caps=(3, 2)), 2, [(7, 8), (7,)]),
        (StepScript(caps=(0, 2)), 2, [(7,)]),
        (StepScript(recompute=(0,), admit=0), 2, [(7, 8, 9)]),
    ],
)
def test_caps_and_the_budget_limit_how_far_is_looked_ahead(step, num_requests, drafted):
    """A cap counts known tokens and guessed ones; all that is known comes before anything that is guessed."""
    scheduler = guessing([step], num_requests)
    scheduler._script = iter([step])
    output = scheduler.schedule()
    assert [row.draft_token_ids for row in output.rows] == drafted
    assert output.num_scheduled_tokens <= BUDGET
    assert all(row.num_scheduled_tokens == 1 + len(row.draft_token_ids) for row in output.rows)

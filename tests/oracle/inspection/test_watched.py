"""A run is kept as it was, also one that ends before its end, and a fault is gone when it has ended."""

from dataclasses import replace

import pytest

from oracle.errors import OracleError, ScenarioError
from oracle.explain.recording import StepRecord
from oracle.inspection.watched import watch


def test_watch_keeps_every_step_with_tables_and_slots(seen):
    assert seen.error is None
    assert [step.number for step in seen.steps] == list(range(7))
    assert all(row.block_ids and None not in row.slots for step in seen.steps for row in step.rows)
    row = seen.step(2).rows[0]
    assert row.slots == [row.block_ids[4] * 2]
    assert seen.prompt_lengths == [8, 6]
    assert seen.title == "paged, float32"


def test_watch_gives_what_the_requests_give_unwatched(seen, schedule):
    again = watch(schedule, mode="continuous")
    assert [state.token_ids for own in seen.drive.driven for state in own.states] == [
        state.token_ids for own in again.drive.driven for state in own.states
    ]
    assert again.blocks is None


def test_watch_runs_the_symbolic_model(symbolic):
    found = watch(symbolic, mode="paged")
    assert found.error is None
    assert found.eps == 0
    assert found.title == "paged, symbolic model"
    assert len(found.steps) == 7


def test_watch_keeps_what_ended_a_run(schedule):
    found = watch(schedule, mode="paged", fault="copied_backwards")
    assert found.title.endswith("planted: copied_backwards")
    assert found.error is not None
    assert isinstance(found.steps[-1], StepRecord)
    assert watch(schedule, mode="paged").error is None, "the fault is gone"


def test_watch_runs_what_a_script_guesses(schedule):
    engine = replace(schedule.engine, speculative="scripted", num_speculative_tokens=2)
    found = watch(replace(schedule, engine=engine, script=()), mode="paged")
    assert found.error is None
    assert any(row.num_guessed for step in found.steps for row in step.rows)


def test_watch_refuses_unknown_names(schedule, symbolic):
    with pytest.raises(ScenarioError, match="mode 'tiled' is unknown"):
        watch(schedule, mode="tiled")
    with pytest.raises(ScenarioError, match="mode 'paged_gather' is unknown for this case"):
        watch(symbolic, mode="paged_gather")
    with pytest.raises(OracleError, match="oracle faults --list"):
        watch(schedule, mode="paged", fault="no_such_fault")


def test_step_refuses_one_that_was_not_taken(seen):
    for number in (-1, 7):
        with pytest.raises(ScenarioError, match=f"step {number} was not taken; the run has steps 0 to 6"):
            seen.step(number)

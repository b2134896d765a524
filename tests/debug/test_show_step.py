"""The script tells what a step was told and did, as the engine was seen to do it."""

from dataclasses import replace

import pytest

from debug.show_step import kind_of, main, ranges, shortened
from oracle.explain.recording import RowRecord
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, EXIT_USAGE


def test_all_steps_stand_in_a_table(run, saved):
    status, lines = run(main, saved())
    assert status == EXIT_SHOWN
    assert lines[0] == "paged, float32: 7 steps, 2 requests"
    numbers = [line.split()[0] for line in lines if line[:1].isdigit()]
    assert numbers == [str(number) for number in range(7)]
    assert any("preempted 1/0 swap" in line for line in lines)


def test_one_step_is_told_in_full(run, saved):
    status, lines = run(main, saved(), "--step", "2")
    assert status == EXIT_SHOWN
    assert lines[0] == "step 2 of 0 to 6 (paged, float32)"
    assert lines[1:4] == [
        "before:    request 1 arrived",
        "scheduler: admitted 0/1, 1/0",
        "blocks:    3 copied into 5; after the step 7 held, 0 kept by the prefix map only, 17 free",
    ]
    assert [line.split() for line in lines[5:8]] == [
        ["0/0", "decode", "8", "51", "0..4", "8", "32"],
        ["0/1", "prefill,", "8", "of", "8", "7", "8", "0..2", "5", "11", "51"],
        ["1/0", "prefill,", "6", "of", "6", "4..5", "9", "8", "0..1", "6", "12..13", "14"],
    ]


def test_ends_and_preemptions_are_told(run, saved):
    _, lines = run(main, saved(), "--step", "4")
    assert "scheduler: preempted 0/1 recompute" in lines
    assert lines[-1] == "then:      ended 0/0 length"
    _, lines = run(main, saved(), "--step", "5")
    assert "scheduler: admitted 0/1, 1/0; swapped in 1/0" in lines


def test_guessed_tokens_are_told_apart(run, saved, schedule):
    engine = replace(schedule.engine, speculative="self", num_speculative_tokens=2)
    path = saved(engine=engine, script=())
    _, lines = run(main, path, "--step", "1")
    (row,) = [line.split() for line in lines if line.startswith("0/0")]
    assert row[1] == "verify"
    assert row[2] == "8..10"
    assert len(row[3:6]) == 3, "the newest token and two guesses"


def test_a_line_of_a_failure_names_the_case(run, saved):
    line = f"run it again: python -m oracle replay {saved()}  (--explain says why)"
    assert run(main, line)[1] == run(main, saved())[1]


def test_other_positions_than_the_schedulers_are_told(run, saved):
    _, lines = run(main, saved(), "--step", "1", "--fault", "chunk_positions_restart")
    assert "0/0: the model was told position_ids 0..4" in lines
    _, lines = run(main, saved(), "--step", "1")
    assert not any("was told" in line for line in lines)


def test_a_run_that_ends_before_its_end_is_told(run, saved):
    status, lines = run(main, saved(), "--fault", "copied_backwards")
    assert status == EXIT_FOUND
    assert lines[-1].startswith("the run ended in step 2: InvariantError: logits hold NaN")
    assert run(main, saved())[0] == EXIT_SHOWN, "the fault is gone"


def test_what_is_left_at_the_end_is_told(run, saved):
    status, lines = run(main, saved(), "--fault", "host_memory_never_given_back")
    assert status == EXIT_FOUND
    assert "3 blocks in host memory are left" in lines[-1]


def test_what_does_not_hold_is_told_also_of_a_step_in_which_nothing_ran(run, saved):
    arguments = (saved(), "--fault", "sharing_takes_no_reference")
    status, lines = run(main, *arguments)
    assert status == EXIT_FOUND
    words = "block 0 has 1 references; tables and pins hold it 3 times"
    assert f"step 4: {words}" in lines
    _, lines = run(main, *arguments, "--step", "4")
    assert "nothing ran" in lines
    assert f"does not hold: {words}" in lines


def test_the_symbolic_model_and_modes_without_blocks_are_shown(run, saved):
    path = saved(checkpoint=None, is_symbolic=True)
    assert run(main, path, "--step", "0")[0] == EXIT_SHOWN
    _, lines = run(main, saved(), "--mode", "none", "--step", "3")
    assert any("prompt and output again  0..10" in line for line in lines)
    assert not any(line.startswith("blocks:") for line in lines)


def test_picture_is_a_file_of_its_own(drawn):
    status, root = drawn(main)
    assert status == EXIT_SHOWN
    assert root.tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "7"], "step 7 was not taken; the run has steps 0 to 6"),
        (["--mode", "tiled"], "mode 'tiled' is unknown"),
        (["--fault", "none_such"], "fault 'none_such' is unknown"),
        (["--model", "somewhere"], "leave --model somewhere away"),
    ],
)
def test_show_step_refuses_in_one_line(refused, arguments, message):
    status, line = refused(main, *arguments)
    assert status == EXIT_USAGE
    assert message in line


def test_numbers_and_tokens_are_written_briefly():
    assert ranges([3, 4, 5, 9, 11, 12]) == "3..5 9 11..12"
    assert ranges([]) == ""
    assert shortened(range(3)) == "0 1 2"
    assert shortened(range(40)) == "0 1 2 3 4 5 ... 34 35 36 37 38 39 (40)"


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (RowRecord(0, 0, 0, 0, (1, 2, 3)), "prefill"),
        (RowRecord(0, 0, 0, 0, (1, 2)), "prefill, 2 of 3"),
        (RowRecord(0, 0, 0, 3, (1, 2, 3, 4)), "decode"),
        (RowRecord(0, 0, 0, 3, (1, 2, 3, 4, 5), num_guessed=1), "verify"),
        (RowRecord(0, 0, 0, 0, (1, 2, 3, 4)), "prompt and output again"),
        (RowRecord(0, 0, 0, 3, (1, 2, 3, 4), is_ended=True), "ended, keeps its place"),
    ],
)
def test_kind_of_a_row_follows_from_what_it_runs(row, kind):
    assert kind_of(row, 3) == kind


def test_show_step_runs_as_a_script(run_as_script):
    finished = run_as_script("debug/show_step.py", "--step", "0")
    assert finished.returncode == EXIT_SHOWN, finished.stderr
    assert finished.stdout.startswith("step 0 of 0 to 6")

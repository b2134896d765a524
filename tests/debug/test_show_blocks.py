"""The script tells who holds each block, what lies in it, and what became of it."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from debug.show_blocks import main, sign_of
from oracle.drive import Drive
from oracle.inspection.block_watch import BlockState
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, EXIT_USAGE
from refinfer.errors import InvariantError


def test_map_has_a_sign_for_each_block_and_step(run, saved):
    status, lines = run(main, saved())
    assert status == EXIT_SHOWN
    assert lines[0] == "24 blocks of 2 over 7 steps (paged, float32)"
    assert lines[3:6] == ["block   0 00++000", "block   1 00++000", "block   2 .0++000"]
    assert "block   6 ..1kkkk" in lines
    assert lines[-1] == "12 more blocks were free all the time"


def test_one_step_shows_holders_references_and_tokens(run, saved):
    status, lines = run(main, saved(), "--step", "3")
    assert status == EXIT_SHOWN
    rows = {line.split()[0]: " ".join(line.split()) for line in lines if line[:1].isdigit()}
    assert rows["0"] == "0 0/0, 0/1 3 finds 1 2 1 2 0/0 0"
    assert rows["5"] == "5 0/1 1 - 7 8 0/0 1; 0/1 2"
    assert rows["6"] == "6 - 1 finds 9 8 9 8 1/0 2"
    assert rows["7"] == "7 0/1 1 - 51 _ 0/1 now"
    assert "free: 16 of 24" in lines
    assert "in host memory: 3 blocks of 1/0" in lines
    assert "block 7: allocated to 0/1" in lines


def test_history_of_a_block_is_told_in_order(run, saved):
    status, lines = run(main, saved(), "--block", "5")
    assert status == EXIT_SHOWN
    assert lines == [
        "block 5 up to step 6 (paged, float32)",
        "step 2: filled from block 3 for 0/1",
        "step 2: written by 0/1, position 7: 8",
        "step 4: taken from 0/1: preempted, recompute",
        "step 4: allocated to 0/0",
        "step 4: written by 0/0, position 10: 22",
        "step 4: given back by 0/0: ended (length); free",
        "step 5: filled from block 4 for 0/1",
        "step 5: written by 0/1, position 9: 32",
        "step 6: given back by 0/1: ended (length); free",
    ]
    assert run(main, saved(), "--block", "5", "--step", "2")[1][1:] == lines[1:3]
    assert run(main, saved(), "--block", "23")[1][1:] == ["nothing: it was free all the time"]


def test_map_of_a_pool_without_spare_blocks_has_a_line_for_each(run, saved, schedule):
    engine = replace(schedule.engine, num_spare_blocks=0)
    _, lines = run(main, saved(requests=schedule.requests[:1], engine=engine, script=()))
    blocks = [line for line in lines if line.startswith("block ")]
    assert lines[0].startswith(f"{len(blocks)} blocks of 2 over ")
    assert lines[-1] == blocks[-1], "and none is said to be free all the time"


def test_show_blocks_refuses_a_run_that_took_no_step(refused, monkeypatch):
    monkeypatch.setattr(Drive, "run", Mock(side_effect=InvariantError("nobody came in")))
    status, line = refused(main)
    assert status == EXIT_USAGE
    assert "no step was taken, so there are no blocks to show: nobody came in" in line


def test_a_leak_is_seen_where_it_stays(run, saved):
    status, lines = run(main, saved(), "--fault", "newest_block_not_released")
    assert status == EXIT_FOUND
    assert "5 blocks are left" in lines[-1]


def test_a_line_of_a_failure_names_the_case(run, saved):
    assert run(main, f"again: python -m oracle replay {saved()} --explain")[1] == run(main, saved())[1]


def test_picture_is_a_file_of_its_own(drawn):
    status, root = drawn(main)
    assert status == EXIT_SHOWN
    assert root.tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "continuous"], "mode 'continuous' has no blocks; choose among paged, paged_gather"),
        (["--block", "24"], "there is no block 24; the pool has blocks 0 to 23"),
        (["--step", "7"], "step 7 was not taken; the run has steps 0 to 6"),
        (["--block", "0", "--step", "-1"], "step -1 was not taken"),
    ],
)
def test_show_blocks_refuses_in_one_line(refused, arguments, message):
    status, line = refused(main, *arguments)
    assert status == EXIT_USAGE
    assert message in line


@pytest.mark.parametrize(
    ("holders", "ref_count", "published", "sign"),
    [
        ((), 0, None, "."),
        ((), 1, (1,), "k"),
        (((3, 0),), 1, None, "3"),
        (((12, 1),), 2, (1,), "c"),
        (((0, 0), (0, 1)), 2, None, "+"),
    ],
)
def test_each_state_has_its_sign(holders, ref_count, published, sign):
    assert sign_of(BlockState(holders, ref_count, published, ())) == sign


def test_show_blocks_runs_as_a_script(run_as_script):
    finished = run_as_script("debug/show_blocks.py", "--block", "0")
    assert finished.returncode == EXIT_SHOWN, finished.stderr
    assert finished.stdout.startswith("block 0 up to step 6")

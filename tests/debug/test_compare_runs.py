"""The script says where two runs part, and how much of each request is equal."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from debug.compare_runs import main
from debug.first_divergence import DEMONSTRATION
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, EXIT_USAGE


def test_two_modes_agree(run, saved):
    status, lines = run(main, saved(), "--modes", "paged,continuous")
    assert status == EXIT_SHOWN
    assert lines[:3] == [
        "first:  paged, float32, 7 steps",
        "second: continuous, float32, 7 steps",
        "nothing differs: tokens, ends, and every bit of what both runs computed",
    ]
    assert ["0/0", "11", "11", "0", "0", "0", "all", "equal", "length"] in [line.split() for line in lines]
    assert "request 0/0 ..........." in lines


def test_a_planted_bug_parts_the_second_run_from_the_first(run, saved):
    status, lines = run(main, saved(), "--fault", "chunk_positions_restart")
    assert status == EXIT_FOUND
    assert lines[1] == "second: paged, float32, planted: chunk_positions_restart, 7 steps"
    assert lines[2] == "first difference: step 1, request 0/0, position 3, position_ids: 3 off"
    assert any(line.startswith("request 0/0 ...####") for line in lines)


def test_a_planted_bug_stands_in_both_runs_where_those_differ(run, saved):
    path = saved(DEMONSTRATION)
    status, lines = run(main, path, "--fault", "rope_scaling_ignored", "--modes", "none,paged")
    assert status == EXIT_SHOWN
    assert [line.count("planted: rope_scaling_ignored") for line in lines[:2]] == [1, 1]
    assert run(main, path, "--fault", "rope_scaling_ignored")[0] == EXIT_FOUND


def test_rounding_is_told_from_a_fault(run, saved):
    path = saved(replace(DEMONSTRATION, batch_invariant=False))
    status, lines = run(main, path, "--modes", "none,paged")
    assert status == EXIT_FOUND, "the bits are others"
    assert lines[2].startswith("first other bits: step ")
    assert lines[3] == "first token that parts: none"
    assert not any(line.startswith("first beyond rounding") for line in lines)
    assert any("~" in line for line in lines if line.startswith("request 1/0"))
    assert not any("#" in line for line in lines if line.startswith("request 1/0"))


def test_a_fault_is_told_behind_the_rounding_before_it(run, saved):
    path = saved(replace(DEMONSTRATION, batch_invariant=False))
    _, lines = run(main, path, "--modes", "none,continuous", "--fault", "growth_loses_newest_token")
    assert lines[2].startswith("first other bits: step 1, ")
    assert lines[3].startswith("first beyond rounding: step 3, request 1/0, position 64, ")


def test_two_cases_are_compared_as_far_as_their_tokens_agree(run, saved, schedule):
    first, second = schedule.requests
    other = saved(name="other", requests=(replace(first, prompt_token_ids=(1, 2, 3, 4, 5, 6, 7, 9)), second))
    line = f"again: python -m oracle replay {other} --explain"
    status, lines = run(main, saved(), line)
    assert status == EXIT_FOUND
    assert lines[0] == "first:  case.json (paged, float32), 7 steps"
    assert lines[1].startswith("second: other.json (paged, float32), ")
    assert "no bit of what both computed differs" in lines
    assert "first token that parts: request 0/0, prompt, position 7: 8 and 9" in lines


def test_a_run_that_ends_before_its_end_is_told(run, saved):
    status, lines = run(main, saved(), "--fault", "host_memory_never_given_back")
    assert status == EXIT_FOUND
    assert "it ended by InvariantViolation: all requests have ended, and 3 blocks in host memory are left" in lines


def test_picture_is_a_file_of_its_own(run, saved, tmp_path):
    picture = tmp_path / "heat.svg"
    run(main, saved(), "--fault", "chunk_positions_restart", "--picture", str(picture))
    assert ET.parse(picture).getroot().tag.endswith("svg")  # noqa: S314 - it is our own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to compare; give another case, two --modes, or a --fault"),
        (["--modes", "paged,none,static"], "names 3 modes; give one, or two and a single case"),
        (["--modes", "paged,tiled"], "mode 'tiled' is unknown"),
        (["nowhere.json"], "nowhere.json cannot be read"),
        (["nowhere.json", "--modes", "paged,none"], "give one, or two and a single case"),
        (["--fault", "none_such"], "fault 'none_such' is unknown"),
    ],
)
def test_compare_runs_refuses_in_one_line(refused, arguments, message):
    status, line = refused(main, *arguments)
    assert status == EXIT_USAGE
    assert message in line


def test_compare_runs_runs_as_a_script(run_as_script):
    finished = run_as_script("debug/compare_runs.py", "--modes", "paged,none")
    assert finished.returncode == EXIT_SHOWN, finished.stderr
    assert "nothing differs" in finished.stdout

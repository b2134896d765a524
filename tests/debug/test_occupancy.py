"""Reserved places are nearly all in use in blocks, and not in a rectangle."""

import pytest

from debug.occupancy import main, read_workload, run_paged, run_static


def test_blocks_of_w1_are_nearly_full():
    requests = read_workload()
    assert len(requests) == 48
    paged, static = run_paged(requests, 16), run_static(requests)
    assert paged.share >= 0.94
    assert static.share < paged.share
    num_tokens = sum(request.params.max_tokens or 0 for request in requests)
    assert paged.stats.num_emitted_tokens == static.stats.num_emitted_tokens == num_tokens


def test_smaller_blocks_are_fuller():
    requests = read_workload(6)
    assert run_paged(requests, 1).share == 1.0
    assert run_paged(requests, 4).share > run_paged(requests, 64).share


def test_occupancy_is_told_for_both_caches(capsys):
    assert main(["--requests", "4"]) == 0
    shown = capsys.readouterr().out
    assert "blocks of 16" in shown
    assert "paged" in shown
    assert "static" in shown


@pytest.mark.parametrize("option", ["--block-size", "--requests"])
def test_occupancy_refuses_numbers_below_one(usage_error, option):
    assert f"{option}: 0 is not at least 1" in usage_error(main, option, "0")

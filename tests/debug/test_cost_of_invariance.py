"""The script times both manners on the same work, and says what it cannot run."""

import re

import pytest

from debug.cost_of_invariance import main
from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.inspection.script import EXIT_USAGE

pytestmark = pytest.mark.without_shape_checks

ROW = re.compile(r"float32\s+│\s+([\d.]+)\s+│\s+([\d.]+)\s+│\s+([\d.]+)")


def figures(capsys, *arguments):
    """The exit status, and the three figures of the row of float32."""
    status = main(arguments)
    output = capsys.readouterr().out
    found = ROW.search(output)
    return status, output, [float(text) for text in found.groups()] if found else None


def test_workload_is_timed_in_both_manners(capsys):
    status, output, (plain, invariant, ratio) = figures(capsys, "--requests", "1", "--repeats", "1", "--threads", "1")
    assert status == 0
    assert "W1: seconds, shortest of 1" in output
    assert ratio == pytest.approx(invariant / plain, rel=0.05)


def test_one_request_is_timed_on_a_checkpoint(capsys):
    folder = cached_checkpoint(CheckpointSpec(vocab_size=5000))
    status, output, (plain, invariant, _) = figures(capsys, "--model", str(folder), "--tokens", "2", "--repeats", "1")
    assert status == 0
    assert "one request alone" in output
    assert min(plain, invariant) > 0


@pytest.mark.parametrize("arguments", [("--dtypes", "int8"), ("--model", "no/such folder")], ids=["dtype", "model"])
def test_cost_of_invariance_refuses_what_cannot_run(capsys, arguments):
    assert main(arguments) == EXIT_USAGE
    captured = capsys.readouterr()
    assert not captured.out
    assert arguments[1] in captured.err


@pytest.mark.parametrize("option", ["--repeats", "--threads", "--requests", "--tokens"])
def test_cost_of_invariance_refuses_numbers_below_one(usage_error, option):
    assert f"{option}: 0 is not at least 1" in usage_error(main, option, "0")

"""Time, memory and escapes of damaged checkpoints are told as they are."""

import sys
from pathlib import Path

import pytest

from oracle.checkpoints import write_checkpoint
from oracle.damage import WORKS
from tests.benchmarks import damage_cost

pytestmark = [
    pytest.mark.without_shape_checks,
    pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is begun anew on Linux only"),
]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """A large checkpoint that is none, which costs a test nothing."""
    monkeypatch.setattr(damage_cost, "LARGE", damage_cost.SMALL[0])
    monkeypatch.setattr(damage_cost, "SMALL", damage_cost.SMALL[:1])
    monkeypatch.setattr(damage_cost, "NUM_SOUND_RUNS", 1)


def test_every_damage_is_counted():
    told: list[str] = []
    report = damage_cost.measured(4, 2, seed=1, on_case=told.append)
    assert len(told) == sum(report["outcomes"].values()) == 6
    assert report["escaped"] == []
    assert report["slowest"]["time_ratio"] > 0
    assert report["heaviest"]["is_large"]


def test_what_escapes_is_told(monkeypatch):
    def outcome(folder: Path, *, batch_invariant: bool) -> str:
        assert isinstance(batch_invariant, bool)
        if folder.name == "damaged":
            raise SystemExit(3)
        return WORKS

    monkeypatch.setattr(damage_cost, "outcome", outcome)
    report = damage_cost.measured(1, 1)
    assert report["is_bad"]
    assert [entry["outcome"] for entry in report["escaped"]] == ["SystemExit: 3"] * 2


@pytest.mark.parametrize(("time_ratio", "memory_share"), [(11.0, 1.0), (1.0, 1.3)], ids=["time", "memory"])
def test_what_costs_too_much_is_told(time_ratio, memory_share):
    entry = {"outcome": "works", "escaped": False, "is_large": True, "damage": "none", "seed": 0}
    sound = {"memory_share": 1.0}
    good = entry | {"time_ratio": 1.0, "memory_share": 1.0}
    bad = entry | {"time_ratio": time_ratio, "memory_share": memory_share}
    assert not damage_cost._report([good], sound)["is_bad"]
    assert damage_cost._report([good, bad], sound)["is_bad"]


def test_memory_is_that_of_the_load_alone(monkeypatch, tmp_path):
    folder = write_checkpoint(damage_cost.SMALL[0], tmp_path / "checkpoint")
    held = bytearray(b"x") * 2**25  # which the process has before
    size = 2**26

    def outcome(_folder: Path, *, batch_invariant: bool) -> str:
        return str(len(bytearray(b"x") * size) + batch_invariant)

    monkeypatch.setattr(damage_cost, "outcome", outcome)
    entry = damage_cost._entry(folder, batch_invariant=False)
    assert 0.9 * size < entry["memory"] < size + len(held)

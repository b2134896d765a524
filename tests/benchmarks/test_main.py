"""The command measures, writes what it measured, shows it, and says by its exit status whether tokens were equal."""

import json

import pytest

from oracle.properties import PROPERTIES
from oracle.subjects import MODES
from tests.benchmarks import __main__ as command
from tests.benchmarks import comparison, damage_cost, growth, harness_cost

pytestmark = [pytest.mark.usefixtures("_own_models"), pytest.mark.without_shape_checks]


def run(tmp_path, *arguments):
    """The exit status, and the reports that were written."""
    path = tmp_path / "report.json"
    few = ("--requests", "1", "--most", "2", "--rounds", "1", "--threads", "1")
    status = command.main([*arguments, *few, "--json", str(path)])
    return status, json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def on_tiny(monkeypatch, tiny):
    """All workloads are the tiny one."""
    monkeypatch.setattr(command, "WORKLOADS", dict.fromkeys(command.WORKLOADS, lambda: tiny))


@pytest.mark.usefixtures("on_tiny")
@pytest.mark.parametrize(
    ("arguments", "num_reports", "names"),
    [
        (("peers", "--no-vllm"), 1, {"HF generate, one by one", "HF generate_batch, pages of 256", "refinfer exact"}),
        (("modes",), 1, {"none, alone", "none, batch", "static, batch", "paged, alone"}),
        (("prefix",), 1, {"exact, with prefix caching", "plain, without prefix caching"}),
        (("uneven",), 4, {"static", "continuous", "paged"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_engines_are_measured_shown_and_drawn(tmp_path, capsys, arguments, num_reports, names):
    status, reports = run(tmp_path, *arguments)
    assert status == 0
    assert len(reports) == num_reports
    for report in reports:
        assert names <= {engine["name"] for engine in report["engines"]}
        assert all(engine["num_equal"] == 1 for engine in report["engines"])
    assert "tok/s" in capsys.readouterr().out
    assert command.main(["draw", str(tmp_path / "report.json"), "--images", str(tmp_path / "images")]) == 0
    assert len(list((tmp_path / "images").glob("*.svg"))) == 1


@pytest.mark.usefixtures("on_tiny")
def test_other_tokens_are_told_by_the_exit_status(tmp_path, monkeypatch):
    compare = comparison.compare

    def compared(work, openers, rounds, on_turn):
        entries = compare(work, openers, rounds, on_turn)
        entries[-1].num_equal = 0
        return entries

    monkeypatch.setattr(command, "compare", compared)
    status, reports = run(tmp_path, "prefix")
    assert status == 1
    assert reports is not None


def test_engine_that_is_not_installed_is_named(tmp_path, capsys):
    status, reports = run(tmp_path, "peers")
    assert (status, reports) == (2, None)
    assert "oracle engines install vllm" in capsys.readouterr().err


def test_benchmarks_refuse_to_draw_what_is_not_there(tmp_path, capsys):
    assert command.main(["draw", str(tmp_path / "nowhere.json"), "--images", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nowhere.json" in line


@pytest.mark.usefixtures("on_tiny")
def test_profile_has_shares_of_both_manners(tmp_path, capsys):
    status, reports = run(tmp_path, "profile")
    assert status == 0
    assert [(report["workload"], report["manner"]) for report in reports] == [("tiny", "exact"), ("tiny", "plain")]
    assert capsys.readouterr().out.count("products by weights") == 2


def test_growth_is_measured_point_by_point(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(growth, "scheduling_seconds", lambda _queue, num_waiting: 1e-6 * num_waiting)
    monkeypatch.setattr(growth, "step_seconds", lambda _folder, **options: 1e-3 * len(options))
    status, (report,) = run(tmp_path, "growth")
    assert status == 0
    assert set(report["charts"]) == {"waiting", "running", "context", "pool"}
    for points in report["charts"]["waiting"].values():
        assert points == [[number, 1e-6 * number] for number in growth.NUMS_WAITING]
    assert "milliseconds of one step" in capsys.readouterr().out


@pytest.mark.parametrize("is_bad", [False, True])
def test_cost_of_damage_is_shown(tmp_path, monkeypatch, capsys, is_bad):
    entry = {
        "damage": "config.json: gone",
        "outcome": "KeyError: x",
        "seed": 7,
        "time_ratio": 2.5,
        "memory_share": 0.75,
    }
    report = {
        "outcomes": {"CheckpointError": 3},
        "slowest": entry,
        "heaviest": entry,
        "sound_memory_share": 1.05,
        "escaped": [entry] * is_bad,
        "is_bad": is_bad,
    }
    monkeypatch.setattr(damage_cost, "measured", lambda *_, **__: report)
    status, (written,) = run(tmp_path, "damage")
    assert status == int(is_bad)
    assert written["slowest"] == entry
    out = capsys.readouterr().out
    assert "2.50" in out
    assert ("seed 7" in out) == is_bad


def test_cost_of_the_harness_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(harness_cost, "schedules_per_second", lambda *_: {"symbolic, paged": 250.0})
    monkeypatch.setattr(harness_cost, "seconds_per_property", lambda *_, **__: {"bits": 0.125})
    status, (report,) = run(tmp_path, "harness")
    assert status == 0
    assert report["seconds"] == {"bits": 0.125}
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["symbolic,", "paged", "250"] in lines
    assert ["bits", "0.125"] in lines


def test_cost_of_the_harness_is_measured_in_every_mode_and_property():
    rates = harness_cost.schedules_per_second(2, 1)
    assert len(rates) == 2 + len(MODES)
    assert all(rate > 0 for rate in rates.values())
    chosen = [prop for prop in PROPERTIES if prop.name in ("forward", "text")]
    told: list[str] = []
    seconds = harness_cost.seconds_per_property(1, chosen, on_property=told.append)
    assert told == list(seconds) == [prop.name for prop in chosen]
    assert told
    assert all(own > 0 for own in seconds.values())


@pytest.mark.parametrize("option", ["--threads", "--rounds", "--requests", "--most", "--seqs"])
def test_benchmarks_refuse_numbers_below_one(capsys, option):
    with pytest.raises(SystemExit):
        command.main(["peers", option, "0"])
    assert f"{option}: 0 is not at least 1" in capsys.readouterr().err

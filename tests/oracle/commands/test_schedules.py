"""`python -m oracle schedules` says pass, vacuous or fail, and writes what `replay` reads."""

import re

import pytest
import torch

from oracle import schedule_properties
from oracle.__main__ import main
from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, EXIT_USAGE, EXIT_VACUOUS
from oracle.faults import FAULTS
from oracle.sampling_effects import OTHER_PARAMETERS, TOKEN_PARAMETERS
from oracle.scenario import Scenario
from oracle.schedule_witness import SPECULATIVE_FEATURES
from refinfer.scheduler import BlockSpace

pytestmark = pytest.mark.without_shape_checks

SYMBOLIC = ["schedules", "--symbolic", "--modes", "continuous"]


def test_schedules_passes(capsys):
    assert main([*SYMBOLIC, "--examples", "5"]) == EXIT_PASS
    assert "preemption" in capsys.readouterr().out


def test_parameters_without_an_effect_are_shown_as_well(capsys):
    main(["schedules", "--symbolic", "--modes", "paged", "--examples", "60"])
    counts = dict(re.findall(r"effect of (\w+) +│ (\d+)", capsys.readouterr().out))
    assert list(counts) == [*TOKEN_PARAMETERS, *OTHER_PARAMETERS]
    assert "0" in counts.values()
    assert set(counts.values()) != {"0"}


def test_few_schedules_are_vacuous():
    assert main(["schedules", "--symbolic", "--modes", "paged", "--examples", "1"]) == EXIT_VACUOUS


def test_unknown_mode_is_refused():
    assert main(["schedules", "--modes", "x"]) == EXIT_USAGE


def test_a_failure_is_written_and_replayed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(BlockSpace, "_copy_on_write", lambda *_: None)
        arguments = ["--modes", "paged", "--examples", "60", "--failures", str(tmp_path)]
        assert main(["schedules", "--symbolic", *arguments]) == EXIT_FAIL
        path = tmp_path / "schedules-paged.json"
        assert len(Scenario.load(path).requests) <= 2
        assert main(["replay", str(path)]) == EXIT_FAIL
    assert main(["replay", str(path)]) == EXIT_PASS


@pytest.mark.parametrize("manner", [[], ["--plain"]])
def test_schedules_run_on_tiny_models(manner):
    assert main(["schedules", *manner, "--modes", "static", "--examples", "1"]) == EXIT_PASS


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_schedules_run_in_the_dtype_and_threads_that_are_asked_for(monkeypatch, dtype):
    seen = set()
    observe = schedule_properties.observe_schedule

    def recorded(case, mode):
        seen.add((case.scenario.dtype, case.loaded(batch_invariant=True).model.dtype, torch.get_num_threads()))
        return observe(case, mode)

    monkeypatch.setattr(schedule_properties, "observe_schedule", recorded)
    arguments = ["schedules", "--modes", "static", "--examples", "1", "--dtype", dtype, "--threads", "3"]
    assert main(arguments) == EXIT_PASS
    assert seen == {(dtype, getattr(torch, dtype), 3)}


def test_a_dtype_for_the_symbolic_model_is_refused(capsys):
    assert main([*SYMBOLIC, "--dtype", "float16"]) == EXIT_USAGE
    assert "--dtype float16 has no meaning with --symbolic" in capsys.readouterr().err


def shares(output):
    """The share of schedules with each feature of guessed tokens, as the table shows it."""
    rows = [[cell.strip() for cell in line.strip("│┃| ").replace("┃", "│").split("│")] for line in output.splitlines()]
    return {row[0]: row[1] for row in rows if row[0] in SPECULATIVE_FEATURES}


def test_speculative_schedules_guess_and_show_what_became_of_it(capsys):
    assert main(["schedules", "--symbolic", "--speculative", "--examples", "6"]) == EXIT_VACUOUS
    output = capsys.readouterr().out
    assert set(shares(output)) == set(SPECULATIVE_FEATURES)
    assert shares(output)["accept"] != "0.0%"
    assert "continuous" not in output, "only what has blocks guesses"


def test_speculative_run_is_vacuous_for_want_of_features_of_guesses(capsys, monkeypatch):
    """Their names are among those that never came up, which they are not in a run that need not have guesses."""
    monkeypatch.setenv("COLUMNS", "500")  # no line is broken
    vacuous = {}
    for options in ([], ["--speculative"]):
        main(["schedules", "--symbolic", *options, "--modes", "paged", "--examples", "1"])
        (line,) = [own for own in capsys.readouterr().out.splitlines() if own.startswith("vacuous: ")]
        vacuous[bool(options)] = line
    assert "lost block" in vacuous[True]
    assert not any(name in vacuous[False] for name in SPECULATIVE_FEATURES)


def test_schedule_that_fails_for_its_guesses_is_written_and_replayed(tmp_path):
    arguments = ["--speculative", "--examples", "20", "--failures", str(tmp_path)]
    with FAULTS["wrong_guess_emitted"].planted():
        assert main(["schedules", "--symbolic", *arguments]) == EXIT_FAIL
        path = tmp_path / "schedules-paged.json"
        engine = Scenario.load(path).engine
        assert engine.speculative is not None
        assert len(engine.guesses) == 1
        assert main(["replay", str(path)]) == EXIT_FAIL
    assert main(["replay", str(path)]) == EXIT_PASS


def test_speculative_schedules_run_on_tiny_models(capsys):
    assert main(["schedules", "--speculative", "--modes", "paged_gather", "--examples", "1"]) == EXIT_VACUOUS
    assert "FAIL" not in capsys.readouterr().out


def test_schedules_see_a_bug_that_they_are_told_to_plant(tmp_path, capsys):
    arguments = ["--modes", "paged", "--examples", "60", "--failures", str(tmp_path)]
    assert main(["schedules", "--symbolic", *arguments, "--fault", "copy_on_write_left_out"]) == EXIT_FAIL
    assert "run it again" in capsys.readouterr().out
    path = tmp_path / "schedules-paged.json"
    assert main(["replay", str(path), "--fault", "copy_on_write_left_out"]) == EXIT_FAIL
    assert main(["replay", str(path)]) == EXIT_PASS, "the bug is gone"

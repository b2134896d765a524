"""The script names what a planted fault breaks, and nothing where nothing is planted."""

import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

from debug import first_divergence
from debug.first_divergence import DEMONSTRATION, main
from oracle.case import Case
from oracle.faults import FAULTS
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, EXIT_USAGE
from oracle.localise import WAYS
from refinfer.errors import InvariantError

pytestmark = pytest.mark.without_shape_checks

LAYER = "model.layers.0"
ATTENTION = f"{LAYER}.self_attn"


def run(capsys, *arguments):
    """The exit status and what was printed, both streams."""
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_no_module_parts_where_nothing_is_planted(capsys):
    status, text = run(capsys)
    assert status == EXIT_SHOWN
    *ways, last = text.splitlines()
    assert tuple(line.split(":")[0] for line in ways) == WAYS
    assert "no module parts" in last


@pytest.mark.parametrize(
    ("fault", "way", "place"),
    [
        ("norm_epsilon", "alone", f"{LAYER}.input_layernorm, position 0"),
        ("activation_gelu", "alone", f"{LAYER}.mlp.down_proj, position 0"),
        ("gate_and_up_swapped", "alone", f"{LAYER}.mlp.down_proj, position 0"),
        ("rope_adjacent_pairs", "alone", f"{ATTENTION}.rotated_queries, position 1"),
        ("legacy_rope_scaling_missed", "alone", f"{ATTENTION}.rotated_queries, position 1"),
        ("biases_left_zero", "alone", f"{ATTENTION}.q_proj, position 0"),
        ("tie_flag_ignored", "alone", "lm_head, position 0"),
        ("kv_heads_tiled", "alone", f"{ATTENTION}.per_head_output, position 0"),
        ("causal_mask_top_left", "chunked", f"{ATTENTION}.per_head_output, position 5"),
        ("chunk_positions_restart", "chunked", "position_ids, position 5"),
        ("padding_attended", "static", f"{ATTENTION}.per_head_output, position 0"),
        ("shared_positions_under_padding", "static", "position_ids, position 1"),
        ("ended_rows_compacted", "static", "input_ids, position 64"),
        ("growth_loses_newest_token", "continuous", f"{ATTENTION}.per_head_output, position 64"),
        ("rows_mapped_in_old_order", "continuous", "step_logits, position 64"),
    ],
)
def test_a_planted_fault_is_found_where_it_was_planted(capsys, fault, way, place):
    status, text = run(capsys, "--fault", fault, "--ways", way)
    assert status == EXIT_FOUND
    assert f"first divergence at {place}:" in text
    assert "the subject is off" in text
    assert FAULTS[fault].bug in text


@pytest.mark.parametrize(
    ("fault", "name"),
    [("rope_angles_in_half_precision", "rotated_queries"), ("norm_in_half_precision", "input_layernorm")],
)
def test_half_precision_is_held_to_the_references_bits(capsys, fault, name):
    """Such a fault errs by no more than half precision does, so no bound on the error would show it."""
    status, text = run(capsys, "--fault", fault, "--dtype", "bfloat16", "--ways", "alone")
    assert status == EXIT_FOUND
    assert f"{name}, position" in text
    assert "they round differently" in text


def test_a_fault_is_gone_when_the_script_has_ended(capsys):
    arguments = ("--ways", "alone,static")
    assert run(capsys, "--fault", "padding_attended", *arguments)[0] == EXIT_FOUND
    assert run(capsys, *arguments)[0] == EXIT_SHOWN


def test_ways_are_tried_from_the_simplest_on(capsys):
    _, text = run(capsys, "--fault", "chunk_positions_restart")
    assert text.index("alone: nothing differs") < text.index("chunked: step 1, request 1: first divergence")
    assert "continuous:" not in text


def test_a_cache_of_somebody_else_is_found_where_it_is_read_first(capsys):
    status, text = run(capsys, "--fault", "ended_cache_handed_on", "--ways", "continuous")
    assert status == EXIT_FOUND
    assert "model.layers.0.self_attn.per_head_output" in text


def test_figures_around_the_divergence_are_shown(capsys):
    _, text = run(capsys, "--fault", "kv_heads_tiled", "--ways", "alone")
    assert "rotated_keys" in text
    assert "lm_head" not in text


def test_all_figures_are_shown_where_they_are_wanted(capsys):
    status, text = run(capsys, "--all", "--ways", "alone")
    assert status == EXIT_SHOWN
    assert all(name in text for name in ("position_ids", "rotated_keys", "model.layers.1", "lm_head"))


def test_a_saved_case_is_read(capsys, tmp_path):
    path = tmp_path / "case.json"
    path.write_text(DEMONSTRATION.to_json(), encoding="utf-8")
    status, text = run(capsys, str(path), "--fault", "norm_epsilon", "--ways", "continuous")
    assert status == EXIT_FOUND
    assert "input_layernorm" in text


def test_a_line_of_a_failure_names_the_case(capsys, tmp_path):
    path = tmp_path / "case.json"
    path.write_text(DEMONSTRATION.to_json(), encoding="utf-8")
    line = f"run it again: python -m oracle replay {path}  (--explain says why)"
    status, text = run(capsys, line, "--fault", "norm_epsilon", "--ways", "alone")
    assert status == EXIT_FOUND
    assert "input_layernorm" in text


def test_prompts_run_on_a_checkpoint_that_is_named(capsys):
    case = Case(DEMONSTRATION)
    arguments = ("--model", str(case.folder), "--ids", "1,2,3", "--ids", "4", "--max-tokens", "2", "--dtype", "float64")
    status, text = run(capsys, *arguments, "--ways", "alone,static")
    assert status == EXIT_SHOWN
    assert "alone: nothing differs in 2 steps" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.json"], "nowhere.json cannot be read"),
        (["--ids", "1,2"], "give a case, or --model together with --ids"),
        (["--model", "somewhere"], "give a case, or --model together with --ids"),
        (["case.json", "--ids", "1"], "give a case, or --model together with --ids"),
        (["--model", "somewhere", "--ids", "one"], "--ids 'one' are no token ids"),
        (["--ways", "tiled"], "way 'tiled' is unknown"),
        (["--fault", "none_such"], "fault 'none_such' is unknown; `python -m oracle faults --list` names them all"),
    ],
)
def test_first_divergence_refuses_in_one_line(capsys, arguments, message):
    status, text = run(capsys, *arguments)
    assert status == EXIT_USAGE
    assert message in text
    assert len(text.splitlines()) == 1


def test_first_divergence_refuses_to_run_no_tokens(usage_error):
    assert "--max-tokens: 0 is not at least 1" in usage_error(main, "--max-tokens", "0")


def test_a_line_of_a_failure_names_the_model_too(capsys, saved):
    path = saved(DEMONSTRATION, checkpoint=None)
    line = f"run it again: python -m oracle replay {path} --model {Case(DEMONSTRATION).folder}"
    assert run(capsys, line, "--ways", "alone")[0] == EXIT_SHOWN
    status, text = run(capsys, path)
    assert status == EXIT_USAGE
    assert "generates no checkpoint; name the one that it ran on with --model" in text


def test_an_error_of_a_pass_is_a_finding(capsys, monkeypatch):
    monkeypatch.setattr(first_divergence, "walk_scenario", Mock(side_effect=InvariantError("logits hold NaN")))
    status, text = run(capsys, "--ways", "paged")
    assert (status, text) == (EXIT_FOUND, "paged: InvariantError: logits hold NaN\n")


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, ["--model", "somewhere"], "leave --model somewhere away"),
        ({"checkpoint": None, "is_symbolic": True}, [], "the symbolic model, which has no modules; show_step.py shows"),
    ],
    ids=["own model", "symbolic"],
)
def test_first_divergence_refuses_a_case_in_one_line(capsys, saved, changes, arguments, message):
    status, text = run(capsys, saved(**changes), *arguments)
    assert status == EXIT_USAGE
    assert message in text
    assert len(text.splitlines()) == 1


def test_first_divergence_refuses_a_case_of_another_engine(capsys, request):
    case = next((request.config.rootpath / "notes" / "verdicts" / "cases").glob("*.json"))
    status, text = run(capsys, str(case))
    assert status == EXIT_USAGE
    assert "an engine in the dock, whose steps cannot be watched from here" in text


def test_first_divergence_runs_as_a_script(request):
    root = request.config.rootpath
    finished = subprocess.run(
        [sys.executable, "debug/first_divergence.py", "--ways", "alone", "--fault", "norm_epsilon"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},  # the checkout, also where something else is installed
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    assert finished.returncode == EXIT_FOUND, finished.stderr
    assert "input_layernorm" in finished.stdout
    assert not finished.stderr

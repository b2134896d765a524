"""Each way of breaking a checkpoint breaks it, and a loader that accepts one is seen."""

from pathlib import Path
from unittest import mock

import pytest

from oracle import loader_properties
from oracle.case import Case
from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.errors import OutcomeMismatch
from oracle.loader_properties import BREAKAGES, check_breakages, check_broken_checkpoints, check_damages
from oracle.scenario import RequestSpec, Scenario
from refinfer import load_model
from refinfer.errors import CheckpointError

SPECS = {
    "one file": CheckpointSpec(num_layers=1),
    "two files": CheckpointSpec(num_layers=1, num_shards=2, tie_word_embeddings=True, legacy_rope_keys=True),
    "in bfloat16": CheckpointSpec(num_layers=1, dtype="bfloat16"),
}


@pytest.fixture(params=SPECS)
def folder(request, tmp_path):
    """A whole checkpoint."""
    return write_checkpoint(SPECS[request.param], tmp_path / "checkpoint")


def test_whole_checkpoint_loads(folder):
    load_model(folder)


@pytest.mark.parametrize("name", BREAKAGES)
def test_broken_checkpoint_is_refused_by_name(folder, name):
    break_it, expected = BREAKAGES[name]
    break_it(folder)
    with pytest.raises(expected) as caught:
        load_model(folder)
    assert len(str(caught.value)) > 20


def test_every_way_is_tried_on_a_copy(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert check_breakages(folder) == len(BREAKAGES)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_loader_that_accepts_a_broken_checkpoint_is_seen(folder):
    with (
        mock.patch.object(loader_properties, "load_model", return_value=None),
        pytest.raises(OutcomeMismatch, match="the broken checkpoint loaded"),
    ):
        check_breakages(folder)


def test_loader_that_answers_with_another_error_is_seen(folder):
    def refuse(_folder: Path) -> None:
        message = "something is wrong"
        raise CheckpointError(message)

    with (
        mock.patch.object(loader_properties, "load_model", refuse),
        pytest.raises(OutcomeMismatch, match=r"answered by CheckpointError \(something is wrong\)"),
    ):
        check_breakages(folder)


def test_loader_that_fails_by_accident_is_no_refusal(folder):
    with mock.patch.object(loader_properties, "load_model", side_effect=KeyError("x")), pytest.raises(KeyError):
        check_breakages(folder)


def test_drawn_damage_is_answered_by_our_errors_or_not_at_all(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert check_damages(folder, 0, 20) == 20
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("out of memory"), SystemExit()], ids=repr)
def test_other_errors_of_a_damaged_checkpoint_are_seen(folder, error):
    with (
        mock.patch.object(loader_properties, "outcome", side_effect=error),
        pytest.raises(OutcomeMismatch, match=rf"\(seed 5\), .*: {type(error).__name__} .* came through"),
    ):
        check_damages(folder, 5, 1)


def test_interrupt_is_no_answer_to_damage(folder):
    with (
        mock.patch.object(loader_properties, "outcome", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        check_damages(folder, 5, 1)


def test_breaking_witnesses_itself():
    case = Case(Scenario(requests=(RequestSpec((1,)),), checkpoint=CheckpointSpec(num_layers=1)))
    assert check_broken_checkpoints(case, "none").witnessed

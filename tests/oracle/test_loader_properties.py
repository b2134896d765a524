"""Each way of breaking a checkpoint breaks it, and a loader that accepts one is seen."""

from pathlib import Path
from unittest import mock

import pytest

from oracle import loader_properties
from oracle.case import Case
from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.errors import OutcomeMismatch
from oracle.loader_properties import BREAKAGES, check_breakages, check_broken_checkpoints
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


def test_breaking_witnesses_itself():
    case = Case(Scenario(requests=(RequestSpec((1,)),), checkpoint=CheckpointSpec(num_layers=1)))
    assert check_broken_checkpoints(case, "none").witnessed

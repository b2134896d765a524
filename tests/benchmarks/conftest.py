"""A tiny piece of work that every engine does in a moment, and a folder of its own for models that are written."""

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from tests.benchmarks.workloads import Workload


@pytest.fixture(scope="session")
def tiny():
    """Three requests of different lengths on a generated checkpoint."""
    folder = cached_checkpoint(CheckpointSpec(vocab_size=97))
    return Workload("tiny", folder, ((1, 2, 3), (4, 5, 6, 7, 8), (9, 10)), (4, 2, 6))


@pytest.fixture(scope="session")
def _model_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def _own_models(_model_folder, monkeypatch):
    """Models are written to a temporary folder, not to the user's."""
    monkeypatch.setenv("REFINFER_CACHE", str(_model_folder))

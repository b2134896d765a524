"""What tests of a real model share, and what tests of schedules do."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from oracle.schedule_properties import ModelRuns
from refinfer.errors import CheckpointError
from refinfer.hub import resolve_model


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The fetched model; without it there is nothing to test, and the reason says how to fetch it."""
    try:
        return resolve_model("smollm2")
    except CheckpointError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def runs() -> ModelRuns:
    """Tiny models that are loaded once."""
    return ModelRuns()


@pytest.fixture(scope="module")
def _all_cores() -> Iterator[None]:
    """Gives a real model all cores, which tiny ones do better without."""
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)

"""What the tests of a real model share."""

from pathlib import Path

import pytest

from refinfer.errors import CheckpointError
from refinfer.hub import resolve_model


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The fetched model; without it there is nothing to test, and the reason says how to fetch it."""
    try:
        return resolve_model("smollm2")
    except CheckpointError as error:
        pytest.skip(str(error))

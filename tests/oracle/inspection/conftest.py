"""What was seen of a run in which everything befalls blocks."""

import pytest

from oracle.inspection.watched import watch


@pytest.fixture(scope="session")
def seen(schedule):
    """The run of the eventful schedule in the paged mode."""
    return watch(schedule, mode="paged")

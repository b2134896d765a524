"""Properties that are simple enough to know how a command has to end."""

import pytest

from oracle.commands import check, shared
from oracle.observation import Observation
from oracle.properties import Property


def holds(case, mode):
    """A check that passes."""
    del case, mode
    return Observation()


def named_property(name, check=holds, **settings):
    """A property that asks for nothing unless a check is given."""
    return Property(name, "Does it hold?", check, **settings)


@pytest.fixture
def prop():
    """Makes a property for a test; without a check it holds."""
    return named_property


@pytest.fixture
def only(monkeypatch):
    """Puts other properties in the place of the real ones."""

    def replace(*properties):
        monkeypatch.setattr(shared, "PROPERTIES", properties)

    return replace


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    """Runs a check in this process unless the test says otherwise: another knows no property that a test has made."""
    monkeypatch.setattr(check, "usual_num_processes", lambda *_: 1)

"""Makes a mutant's run of pytest short: what is quick comes first, and a failing example is not made smaller.

Loaded by `[tool.mutmut]` alone. Which cases are tried is as in every other run.
"""

import gc
import json
from pathlib import Path

import pytest
from hypothesis import Phase, settings

STATISTICS = Path("mutmut-stats.json")
"""How long each test takes, as mutmut has measured it in the folder in which it runs pytest."""


@pytest.hookimpl(trylast=True)
def pytest_configure():
    """Takes the profile of every run, without the phases that come after a failure."""
    settings.register_profile("mutants", settings.get_profile("oracle-ci"), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("mutants")
    gc.freeze()  # pytest collects garbage twice at its end; what was imported before the fork is none


def pytest_collection_modifyitems(items):
    """Puts what takes the least time first, and leaves out the tests that read the source, which has all mutants."""
    items[:] = [item for item in items if item.name != "test_no_refusal_is_left_out"]
    if STATISTICS.is_file():
        durations = json.loads(STATISTICS.read_text(encoding="utf-8"))["duration_by_test"]
        items.sort(key=lambda item: durations.get(item.nodeid, 0.0))

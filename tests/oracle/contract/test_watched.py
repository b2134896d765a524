"""An engine that is watched gives what it gives, and its time and witnesses are counted."""

import pytest

from oracle.contract.watched import WatchedEngine
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun


class CountingEngine:
    """Counts what happens in it."""

    def __init__(self):
        self.calls = []
        self._batches = iter((3, 5, 2))

    def declare(self):
        return EngineDeclaration("counting")

    def open(self, folder, knobs):
        self.calls.append((folder, knobs))

    def run(self, requests):
        if not requests:
            raise RuntimeError
        return EngineRun((), {"steps": 2, "max_batch": next(self._batches)})

    def close(self):
        self.calls.append("closed")


def test_everything_is_passed_on_and_counted():
    engine = CountingEngine()
    watched = WatchedEngine(engine)
    watched.open("folder", {"block_size": 4})
    assert [watched.run([EngineRequest("r0", (1,), 1)]).witnesses["max_batch"] for _ in range(3)] == [3, 5, 2]
    watched.close()
    assert engine.calls == [("folder", {"block_size": 4}), "closed"]
    assert watched.witnesses == {"steps": 6, "max_batch": 5}
    assert watched.declare() == engine.declare()
    assert watched.seconds > 0


def test_time_counts_also_where_the_engine_raises():
    watched = WatchedEngine(CountingEngine())
    with pytest.raises(RuntimeError):
        watched.run([])
    assert watched.seconds > 0

"""An engine that is watched gives what it gives, and its time and witnesses are counted."""

import pytest

from oracle.contract.watched import WatchedEngine
from oracle.engines.adapter import Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun
from oracle.errors import EngineHung, EngineProtocolError, EngineRaised

pytestmark = pytest.mark.without_shape_checks  # an engine may count anything


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
    with pytest.raises(EngineRaised):
        watched.run([])
    assert watched.seconds > 0


class RaisingEngine(CountingEngine):
    """Raises the same error whatever it is asked."""

    def __init__(self, error):
        super().__init__()
        self._error = error

    def declare(self):
        raise self._error

    def open(self, *_):
        raise self._error

    def run(self, *_):
        raise self._error

    def close(self):
        raise self._error


def calls_on(engine):
    """Each thing that an engine can be asked."""
    watched = WatchedEngine(engine)
    return [watched.declare, lambda: watched.open("folder", {}), lambda: watched.run([]), watched.close]


def test_regression_whatever_an_engine_in_this_process_raises_is_its_answer():
    """It ended the whole run of the harness, where the same engine in a process of its own had a finding."""
    for call in calls_on(RaisingEngine(KeyError("token"))):
        with pytest.raises(EngineRaised, match="KeyError: 'token'") as caught:
            call()
        assert "raise self._error" in str(caught.value.traceback)


@pytest.mark.parametrize("error", [EngineHung("no answer"), KeyboardInterrupt()])
def test_what_the_harness_knows_already_stays_what_it_is(error):
    for call in calls_on(RaisingEngine(error)):
        with pytest.raises(type(error)):
            call()


def test_model_may_be_refused_and_a_whole_run_may_not():
    _, open_it, run_it, _ = calls_on(RaisingEngine(Refused("too large")))
    with pytest.raises(Refused, match="too large"):
        open_it()
    with pytest.raises(EngineRaised, match=r"refused a whole run, .*: too large"):
        run_it()


@pytest.mark.parametrize("number", [None, "3", 0.5])
def test_what_is_counted_has_to_be_a_number(number):
    class Strange(CountingEngine):
        def run(self, requests):
            del requests
            return EngineRun.from_data({"outputs": [], "witnesses": {"steps": number}})

    with pytest.raises(EngineProtocolError, match="counted as steps"):
        WatchedEngine(Strange()).run([])

import sys

import pytest

from oracle.engines.adapter import EngineAdapter
from oracle.engines.misbehaving import EchoEngine
from oracle.engines.process import ProcessEngine
from oracle.errors import EngineCrashed, EngineHung, EngineProtocolError


@pytest.fixture
def served():
    """Serves an engine of this module in a process of its own."""
    engines = []

    def serve(name):
        engine = ProcessEngine.of_python(f"oracle.engines.misbehaving:{name}", sys.executable, timeout=60.0)
        engines.append(engine)
        engine.open("nowhere", {})
        return engine

    yield serve
    for engine in engines:
        engine.close()


def test_echo_engine_gives_the_last_token_back(request_of):
    engine = EchoEngine()
    engine.open("nowhere", {})
    run = engine.run([request_of("r0", (5, 3), max_tokens=2), request_of("r1", (8,), max_tokens=1)])
    engine.close()
    assert isinstance(engine, EngineAdapter)
    assert [output.samples[0].token_ids for output in run.outputs] == [(3, 3), (8,)]


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("crashing_engine", EngineCrashed, "status 3 while it was asked to 'run'; its last words: the engine crashes"),
        ("babbling_engine", EngineProtocolError, "a line that is no answer: 'INFO step 1"),
    ],
)
def test_misbehaving_engine_is_seen_through_its_process(served, request_of, name, error, words):
    engine = served(name)
    with pytest.raises(error, match=words):
        engine.run([request_of()])


def test_hanging_engine_is_seen_when_time_is_up(served, request_of):
    engine = served("hanging_engine")
    engine._timeout = 0.5
    with pytest.raises(EngineHung, match=r"did not answer 'run' within 0\.5 s"):
        engine.run([request_of()])

"""An engine in a process of its own: its crash, silence or babble is an error with its last words, and never a hang."""

import math
import sys
import time

import pytest

from oracle.engines.adapter import Refused
from oracle.engines.messages import EngineRequest
from oracle.engines.process import ProcessEngine
from oracle.errors import EngineCrashed, EngineHung, EngineProtocolError, EngineRaised

REQUESTS = [EngineRequest("r0", (3, 8), 2)]

ADAPTER = """
import math, os, subprocess, sys, time
from oracle.engines.adapter import Refused
from oracle.engines.misbehaving import EchoEngine
from oracle.engines.messages import EngineOutput, EngineRun, EngineSample

print("printed while it is imported")


class Engine(EchoEngine):
    def open(self, folder, knobs):
        print("printed while it opens")
        subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
        if folder == "refused":
            raise Refused("no such model")

    def run(self, requests):
        what = requests[0].request_id
        if what == "crash":
            print("my last words", file=sys.stderr, flush=True)
            os._exit(3)
        if what == "hang":
            time.sleep(60)
        if what == "raise":
            raise KeyError("token")
        if what == "nan":
            return EngineRun((EngineOutput(what, (EngineSample((1,), logprobs=(math.nan, -math.inf)),)),))
        if what == "large":
            return EngineRun((EngineOutput(what, (EngineSample((1,) * 200000),)),))
        return super().run(requests)
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An engine that does what the name of its first request says."""
    (tmp_path / "odd.py").write_text(ADAPTER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    served = ProcessEngine.of_python("odd:Engine", sys.executable, timeout=20.0)
    yield served
    served.close()


@pytest.fixture
def answering():
    """Starts a process that gives these lines as answers, one for each line that comes in."""
    started = []

    def start(*lines, timeout=20.0):
        program = f"import sys\nfor line, answer in zip(sys.stdin, {list(lines)!r}):\n    print(answer, flush=True)"
        started.append(ProcessEngine([sys.executable, "-c", program], timeout=timeout))
        return started[-1]

    yield start
    for one in started:
        one.close()


def named(name):
    """A request that says what is to happen."""
    return [EngineRequest(name, (3, 8), 2)]


def test_engine_answers_whatever_it_prints(engine):
    assert engine.declare().name == "echo"
    engine.open("x", {})
    assert engine.run(REQUESTS).outputs[0].samples[0].token_ids == (8, 8)


def test_refusal_and_error_are_told_and_the_engine_goes_on(engine):
    with pytest.raises(Refused, match="no such model"):
        engine.open("refused", {})
    with pytest.raises(EngineRaised, match="KeyError: 'token'"):
        engine.run(named("raise"))
    assert engine.run(REQUESTS).outputs


def test_crash_is_told_with_its_last_words_and_the_engine_starts_again(engine):
    with pytest.raises(
        EngineCrashed, match=r"status 3 while it was asked to 'run'; its last words: (?s:.*)my last words"
    ):
        engine.run(named("crash"))
    assert engine.run(REQUESTS).outputs


def test_hang_ends_after_the_time_that_it_has(engine, monkeypatch):
    assert engine.run(REQUESTS).outputs
    monkeypatch.setattr(engine, "_timeout", 0.5)
    begin = time.monotonic()
    with pytest.raises(EngineHung, match=r"did not answer 'run' within 0.5 s"):
        engine.run(named("hang"))
    assert time.monotonic() - begin < 10.0


def test_scores_that_are_no_numbers_and_long_outputs_survive_the_trip(engine):
    first, second = engine.run(named("nan")).outputs[0].samples[0].logprobs
    assert math.isnan(first)
    assert second == -math.inf
    assert len(engine.run(named("large")).outputs[0].samples[0].token_ids) == 200000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("what?", "a line that is no answer: 'what[?]'"),
        ("[]", "no answer"),
        ('{"ok": {}}', "no answer"),
        ('{"id": 1, "ok": null}', "no answer"),
        ('{"id": 1, "ok": "abc"}', "no answer"),
        ('{"id": 1, "ok": [["outputs", []]]}', "no answer"),
        ("NaN", "no answer"),
        ('{"id": 9, "ok": {}}', "message 1 was answered with id 9"),
        ('{"id": 1, "ok": {"outputs": 3}}', "cannot be read"),
        ('{"id": 1, "ok": {"outputs": [{"samples": []}], "witnesses": {}}}', "cannot be read"),
    ],
)
def test_line_that_is_no_answer_is_told(answering, line, words):
    with pytest.raises(EngineProtocolError, match=words):
        answering(line).run(REQUESTS)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": 1, "ok": {"protocol": 99, "name": "x"}}', "speaks version 99"),
        ('{"id": 1, "ok": {"name": "x"}}', "speaks version None"),
        ('{"id": 1, "ok": {"protocol": 1, "name": "x", "contract": "perfect"}}', "contract 'perfect'"),
        ('{"id": 1, "ok": {"protocol": 1}}', "needs a name"),
    ],
)
def test_declaration_that_says_something_else_is_refused(answering, line, words):
    with pytest.raises(EngineProtocolError, match=words):
        answering(line).declare()


def test_process_that_ends_without_an_answer_is_told(answering):
    with pytest.raises(EngineCrashed, match=r"ended with status 0 .* it left no words"):
        answering().declare()


def test_command_that_cannot_be_started_is_told():
    with pytest.raises(EngineCrashed, match="cannot be started"):
        ProcessEngine(["no-such-command-anywhere"]).declare()


DEAF = """
import subprocess, sys, time
{before}
time.sleep(60)
"""


@pytest.mark.parametrize(
    "before",
    ["", "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"],
    ids=["alone", "with a child that holds its pipes"],
)
def test_regression_engine_that_never_reads_hangs_nobody(before):
    """A long message filled the pipe, and a child of the engine's kept it open after the engine was killed."""
    deaf = ProcessEngine([sys.executable, "-c", DEAF.format(before=before)], timeout=0.5)
    begin = time.monotonic()
    with pytest.raises(EngineHung):
        deaf.run([EngineRequest("r0", (1,) * 200_000, 1)])
    deaf.close()
    assert time.monotonic() - begin < 20.0


def test_engine_that_was_started_anew_gets_no_message_of_before(answering):
    served = answering('{"id": 1, "ok": {}}')
    served.open("x", {})
    with pytest.raises(EngineCrashed):
        served.open("y", {})
    with pytest.raises(EngineProtocolError, match="message 3 was answered with id 1"):
        served.open("z", {})


def test_closing_ends_the_process_and_may_come_twice(engine):
    engine.declare()
    process = engine._process
    engine.close()
    engine.close()
    assert process.poll() == 0


def test_process_gets_the_variables_that_it_needs(tmp_path):
    program = 'import os, sys; sys.stdin.readline(); print(\'{"id": 1, "error": "\' + os.environ["ODD"] + \'"}\')'
    served = ProcessEngine([sys.executable, "-c", program], environment={"ODD": str(tmp_path.name)})
    with pytest.raises(EngineRaised, match=tmp_path.name):
        served.declare()
    served.close()

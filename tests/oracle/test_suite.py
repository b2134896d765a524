"""The contract runs as a test module for an engine that an option names, and not otherwise."""

import os
import subprocess
import sys

import pytest

ENGINE = """
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRun, EngineSample

class Engine:
    def declare(self):
        return EngineDeclaration("wordy", families=())

    def open(self, folder, knobs):
        pass

    def run(self, requests):
        samples = [(EngineSample((9,) * request.max_tokens, "length"),) for request in requests]
        return EngineRun(tuple(map(EngineOutput, [request.request_id for request in requests], samples)))

    def close(self):
        pass
"""


@pytest.fixture
def run_suite(tmp_path):
    """Runs the suite beside an engine that gives the same token always; gives status and output."""

    def run(*arguments):
        (tmp_path / "wordy.py").write_text(ENGINE, encoding="utf-8")
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:oracle", "-p", "oracle.plugin"]
        done = subprocess.run(
            [*command, "--pyargs", "oracle.suite", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_suite_holds_the_named_engine_to_each_check(run_suite):
    status, output = run_suite("--oracle-engine", "wordy:Engine", "--oracle-report", "report.json")
    assert status == 1
    assert "refusals: Is what cannot be run refused, and does the engine go on afterwards? No." in output
    assert "an empty prompt was not refused: tokens [[9, 9, 9, 9]]" in output
    assert "no reference judges this model" in output
    assert "1 failed" in output

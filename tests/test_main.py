"""`python -m refinfer` as a process: what signals and closed pipes do to it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oracle.checkpoints import CheckpointSpec, write_checkpoint

ROOT = Path(__file__).parents[1]

# A shell's background jobs ignore interrupts, and so would the process under test.
LISTENS = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A process that writes ids for a long time, stopped by what a test does to it."""
    spec = CheckpointSpec(max_position_embeddings=100_000)
    folder = write_checkpoint(spec, tmp_path_factory.mktemp("main") / "checkpoint")

    def start():
        words = ["generate", "--model", str(folder), "--ids", "--max-tokens", "90000", "1 2 3"]
        command = [sys.executable, "-c", LISTENS, "-m", "refinfer", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", cwd=ROOT)

    return start


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_process_ends_cleanly_after_an_interrupt(endless):
    with endless() as process:
        assert process.stdout.read(1).isdigit()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert out.endswith("\n")
    assert err == "refinfer: interrupted\n"


def test_process_ends_quietly_when_nobody_reads(endless):
    with endless() as process:
        assert process.stdout.read(1).isdigit()
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 141
    assert err == ""

"""The harness's side of the protocol: an engine in its own process, whose crash, silence or babble is a verdict."""

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oracle.engines.adapter import Refused
from oracle.engines.declaration import PROTOCOL_VERSION, EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun
from oracle.errors import EngineCrashed, EngineHung, EngineProtocolError, EngineRaised

LAUNCHER = Path(__file__).with_name("launch.py")

LAST_WORDS = 2000
"""Characters of an engine's standard error that a verdict quotes."""

MAX_LINE_SHOWN = 200
"""Characters of a malformed line that a verdict quotes."""


class ProcessEngine:
    """An engine in a process of its own, as an adapter.

    The process starts with the first message, and again with the next one after it has died or was ended.

    Args:
        command: What starts it, without a shell.
        timeout: Seconds within which each message must be answered.
        environment: Variables beside those of this process.
    """

    def __init__(
        self, command: Sequence[str], *, timeout: float = 300.0, environment: dict[str, str] | None = None
    ) -> None:
        self._command = tuple(command)
        self._timeout = timeout
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._outgoing: queue.Queue[str | None] = queue.Queue()
        self._number = 0
        folder = tempfile.mkdtemp(prefix="oracle-engine-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._errors = Path(folder) / "stderr"
        self.seconds = 0.0
        """Time spent waiting for the engine."""

    @classmethod
    def of_python(
        cls, target: str, python: str, *, timeout: float = 300.0, environment: dict[str, str] | None = None
    ) -> "ProcessEngine":
        """Serves the adapter `MODULE:ATTRIBUTE` with another Python, in whose environment the engine is installed."""
        return cls([python, str(LAUNCHER), target], timeout=timeout, environment=environment)

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`.

        Raises:
            EngineProtocolError: It speaks another version of the protocol, or declares what the harness does not know.
        """
        data = self._ask("declare")
        version = data.pop("protocol", None)
        if version != PROTOCOL_VERSION:
            message = f"the engine speaks version {version} of the protocol, and {PROTOCOL_VERSION} is spoken here"
            raise EngineProtocolError(message, version=version)
        try:
            return EngineDeclaration.from_data(data)
        except (TypeError, ValueError, AttributeError) as error:
            message = f"the engine's declaration cannot be read: {error}"
            raise EngineProtocolError(message) from error

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self._ask("open", folder=folder, knobs=knobs)

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`.

        Raises:
            EngineProtocolError: What came back is no run.
        """
        data = self._ask("run", requests=[request.to_data() for request in requests])
        try:
            return EngineRun.from_data(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"what came back for a run cannot be read: {type(error).__name__}: {error}"
            raise EngineProtocolError(message) from error

    def close(self) -> None:
        """Closes the engine, and ends its process; one that does not end by itself is killed."""
        process = self._process
        if process is None:
            return
        self._process = None
        self._outgoing.put(None)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10.0)
        _end(process)

    def _start(self) -> subprocess.Popen[str]:
        try:
            with self._errors.open("wb") as errors:
                process = subprocess.Popen(  # noqa: S603 - the command is the user's own
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=self._environment,
                    encoding="utf-8",
                    errors="replace",
                    process_group=0,  # so that the processes which it starts end with it
                )
        except OSError as error:
            message = f"{self._command[0]} cannot be started: {error}"
            raise EngineCrashed(message, command=self._command) from error
        self._lines, self._outgoing = queue.Queue(), queue.Queue()
        # Neither reading nor writing may hold this thread up, whatever the engine does or leaves undone.
        for work, lines in ((_read_lines, self._lines), (_write_lines, self._outgoing)):
            threading.Thread(target=work, args=(process, lines), daemon=True).start()
        return process

    def _ask(self, operation: str, **values: object) -> dict[str, Any]:
        """Sends one message and waits for its answer."""
        begin = time.monotonic()
        try:
            return self._answer_to(operation, values)
        except (EngineCrashed, EngineHung, EngineProtocolError):
            if self._process is not None:
                self._outgoing.put(None)
                _end(self._process)
                self._process = None
            raise
        finally:
            self.seconds += time.monotonic() - begin

    def _answer_to(self, operation: str, values: dict[str, object]) -> dict[str, Any]:
        if self._process is None:
            self._process = self._start()
        self._number += 1
        self._outgoing.put(json.dumps({"id": self._number, "op": operation, **values}))
        try:
            line = self._lines.get(timeout=self._timeout)
        except queue.Empty:
            message = f"the engine did not answer {operation!r} within {self._timeout:g} s{self._last_words()}"
            raise EngineHung(message, operation=operation, timeout=self._timeout) from None
        if line is None:
            raise EngineCrashed(self._obituary(operation), operation=operation)
        return self._read(line, operation)

    def _read(self, line: str, operation: str) -> dict[str, Any]:
        try:
            reply = json.loads(line)
            if reply["id"] != self._number:
                message = f"message {self._number} was answered with id {reply['id']!r}"
                raise EngineProtocolError(message)
            if "refused" in reply:
                raise Refused(str(reply["refused"]))
            if "error" in reply:
                raise EngineRaised(str(reply["error"]), traceback=reply.get("traceback"))
            return {**reply["ok"]}
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            shown = line.strip()[:MAX_LINE_SHOWN]
            message = f"the engine answered {operation!r} with a line that is no answer: {shown!r}"
            raise EngineProtocolError(message, line=line) from error

    def _obituary(self, operation: str) -> str:
        code = None
        if self._process is not None:
            try:
                code = self._process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                return f"the engine closed its output while it was asked to {operation!r}{self._last_words()}"
        return f"the engine's process ended with status {code} while it was asked to {operation!r}{self._last_words()}"

    def _last_words(self) -> str:
        words = self._errors.read_text(encoding="utf-8", errors="replace").strip()[-LAST_WORDS:]
        return f"; its last words: {words}" if words else "; it left no words"


def _read_lines(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    if process.stdout is not None:
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
    lines.put(None)


def _write_lines(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    if process.stdin is not None:
        with suppress(OSError), process.stdin:  # it is dead, which reading will tell
            while (line := lines.get()) is not None:
                process.stdin.write(line + "\n")
                process.stdin.flush()


def _end(process: "subprocess.Popen[str]") -> None:
    """Ends a process with all that it started, where the system knows groups of processes."""
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()

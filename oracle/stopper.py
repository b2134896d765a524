"""Raises an error at one instruction of `refinfer` outside the network, counted while calls are watched."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import refinfer

_ROOT = str(Path(refinfer.__file__).parent)
_NETWORK = tuple(str(Path(_ROOT, name)) for name in ("model", "numerics"))
_RETURNS = ("LLMEngine.step", "LLMEngine.abort_request")
"""With the last line of these a request has been told of: what is lost there is lost behind the call."""


class Stopper:
    """Counts instructions while it watches, and raises an error at one of them."""

    def __init__(self, place: int = -1, error: type[BaseException] = KeyboardInterrupt) -> None:
        self._place, self._error = place, error
        self.num_seen = 0
        self.where = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what is called inside the block."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if event == "call":
            is_ours = code.co_filename.startswith(_ROOT) and not code.co_filename.startswith(_NETWORK)
            frame.f_trace_opcodes, frame.f_trace_lines = is_ours, False
            return self._trace if is_ours else None
        if event != "opcode" or (
            code.co_qualname in _RETURNS and frame.f_lineno == max(line or 0 for *_, line in code.co_lines())
        ):
            return self._trace
        self.num_seen += 1
        if self.num_seen - 1 == self._place:
            self.where = f"{code.co_filename.removeprefix(_ROOT)}:{frame.f_lineno} ({code.co_qualname})"
            raise self._error
        return self._trace

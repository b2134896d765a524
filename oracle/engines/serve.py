"""The engine's side of the protocol: one JSON object a line in, one out, until standard input ends.

Whatever the engine prints goes to standard error, so that no line of its own can be taken for an answer.
"""

import importlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.declaration import PROTOCOL_VERSION
from oracle.engines.messages import EngineRequest


def load_adapter(target: str) -> EngineAdapter:
    """Makes the adapter that `MODULE:ATTRIBUTE` names; the attribute is called without arguments.

    Raises:
        ValueError: The target has another form.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        message = f"{target!r} is no adapter; name it as MODULE:ATTRIBUTE"
        raise ValueError(message)
    make: Callable[[], EngineAdapter] = getattr(importlib.import_module(module_name), attribute)
    return make()


def answer(adapter: EngineAdapter, message: dict[str, Any]) -> dict[str, Any]:
    """Carries one message out.

    Returns:
        What goes back: `ok` with what was asked for, `refused` with the engine's words, or `error` with what it raised.
    """
    operation = message.get("op")
    try:
        if operation not in _OPERATIONS:
            return {"error": f"no operation is called {operation!r}; there are {', '.join(_OPERATIONS)}"}
        return {"ok": _OPERATIONS[operation](adapter, message)}
    except Refused as error:
        return {"refused": str(error)}
    # Broad on purpose: whatever the engine raises is its answer, and the next message gets one as well.
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def _declare(adapter: EngineAdapter, _: dict[str, Any]) -> dict[str, Any]:
    return {"protocol": PROTOCOL_VERSION, **adapter.declare().to_data()}


def _open(adapter: EngineAdapter, message: dict[str, Any]) -> dict[str, Any]:
    adapter.open(message["folder"], message["knobs"])
    return {}


def _run(adapter: EngineAdapter, message: dict[str, Any]) -> dict[str, Any]:
    return adapter.run([EngineRequest.from_data(request) for request in message["requests"]]).to_data()


def _close(adapter: EngineAdapter, _: dict[str, Any]) -> dict[str, Any]:
    adapter.close()
    return {}


_OPERATIONS: dict[str, Callable[[EngineAdapter, dict[str, Any]], dict[str, Any]]] = {
    "declare": _declare,
    "open": _open,
    "run": _run,
    "close": _close,
}


def serve(adapter: EngineAdapter, incoming: Iterable[str], outgoing: io.TextIOBase) -> None:
    """Answers each line with a line that carries the same `id`."""
    for line in incoming:
        message = json.loads(line)
        outgoing.write(_line_of(message.get("id"), answer(adapter, message)) + "\n")
        outgoing.flush()


def _line_of(number: Any, reply: dict[str, Any]) -> str:
    try:
        return json.dumps({"id": number, **reply})
    except (TypeError, ValueError) as error:  # such as numbers of other libraries, or a dictionary in itself
        return json.dumps({"id": number, "error": f"what the adapter gave is no plain data: {error}"})


def serve_target(target: str) -> None:
    """Serves an adapter over this process's own pipes."""
    outgoing = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the engine prints, in whichever language, is no answer
    incoming = os.fdopen(os.dup(0), encoding="utf-8")
    sys.stdin = io.StringIO()
    serve(load_adapter(target), incoming, outgoing)

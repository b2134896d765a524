"""The engine's side of the protocol: one JSON object a line in, one out, until standard input ends.

Whatever the engine prints goes to standard error, so that no line of its own can be taken for an answer.
"""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TextIO

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
        if operation == "declare":
            return {"ok": {"protocol": PROTOCOL_VERSION, **adapter.declare().to_data()}}
        if operation == "open":
            adapter.open(message["folder"], message["knobs"])
            return {"ok": {}}
        if operation == "run":
            requests = [EngineRequest.from_data(request) for request in message["requests"]]
            return {"ok": adapter.run(requests).to_data()}
        if operation == "close":
            adapter.close()
            return {"ok": {}}
    except Refused as error:
        return {"refused": str(error)}
    # Broad on purpose: whatever the engine raises is its answer, and the next message gets one as well.
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    return {"error": f"no operation is called {operation!r}; there are declare, open, run and close"}


def serve(adapter: EngineAdapter, incoming: TextIO, outgoing: TextIO) -> None:
    """Answers each line with a line that carries the same `id`."""
    for line in incoming:
        message = json.loads(line)
        outgoing.write(json.dumps({"id": message.get("id"), **answer(adapter, message)}) + "\n")
        outgoing.flush()


def serve_target(target: str) -> None:
    """Serves an adapter over this process's own pipes."""
    outgoing = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the engine prints, in whichever language, is no answer
    incoming = os.fdopen(os.dup(0), encoding="utf-8")
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    serve(load_adapter(target), incoming, outgoing)

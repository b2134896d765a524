"""The engine's side of the protocol answers each line with one line, whatever the engine does."""

import json
from io import StringIO

import pytest

from oracle.engines.adapter import Refused
from oracle.engines.declaration import PROTOCOL_VERSION, EngineDeclaration
from oracle.engines.misbehaving import EchoEngine
from oracle.engines.serve import answer, load_adapter, serve

REQUEST = {
    "request_id": "r0",
    "prompt_token_ids": [3, 8],
    "max_tokens": 2,
    "parameters": {},
    "arrival": 0,
    "abort_after": None,
}


class RefusingEngine(EchoEngine):
    """Takes no model, and raises on every run."""

    def open(self, folder, knobs):
        message = f"{folder} is too large for {knobs}"
        raise Refused(message)

    def run(self, requests):
        message = f"{len(requests)} requests are too many"
        raise RuntimeError(message)


def served(engine, *messages):
    """What an engine answers to some messages."""
    outgoing = StringIO()
    serve(engine, StringIO("".join(json.dumps(message) + "\n" for message in messages)), outgoing)
    return [json.loads(line) for line in outgoing.getvalue().splitlines()]


def test_each_message_is_answered_by_its_number():
    messages = [
        {"id": 7, "op": "declare"},
        {"id": 9, "op": "open", "folder": "x", "knobs": {}},
        {"id": 2, "op": "close"},
    ]
    declared, opened, closed = served(EchoEngine(), *messages)
    assert (declared["id"], declared["ok"]["protocol"], declared["ok"]["name"]) == (7, PROTOCOL_VERSION, "echo")
    assert (opened, closed) == ({"id": 9, "ok": {}}, {"id": 2, "ok": {}})


def test_run_gives_outputs_and_witnesses():
    (reply,) = served(EchoEngine(), {"id": 1, "op": "run", "requests": [REQUEST]})
    output = {"request_id": "r0", "samples": [{"token_ids": [8, 8], "finish_reason": "length"}]}
    assert reply["ok"] == {"outputs": [output], "witnesses": {}}


def test_refusal_is_told_with_the_engines_words():
    reply = answer(RefusingEngine(), {"op": "open", "folder": "x", "knobs": {"a": 1}})
    assert reply == {"refused": "x is too large for {'a': 1}"}


def test_error_is_told_with_where_it_came_from_and_the_next_message_is_answered():
    first, second = served(RefusingEngine(), {"id": 1, "op": "run", "requests": [REQUEST]}, {"id": 2, "op": "declare"})
    assert first["error"] == "RuntimeError: 1 requests are too many"
    assert "in run" in first["traceback"]
    assert second["ok"]["name"] == "echo"


@pytest.mark.parametrize("message", [{"op": "dance"}, {}])
def test_unknown_operation_is_told(message):
    assert "there are declare, open, run, close" in answer(EchoEngine(), message)["error"]


def test_adapter_is_made_by_its_name():
    assert isinstance(load_adapter("oracle.engines.misbehaving:EchoEngine"), EchoEngine)


@pytest.mark.parametrize("target", ["", "module", ":name", "module:"])
def test_name_of_another_form_is_refused(target):
    with pytest.raises(ValueError, match="MODULE:ATTRIBUTE"):
        load_adapter(target)


def test_answer_that_is_no_plain_data_is_an_error_and_the_next_message_is_answered():
    class Strange(EchoEngine):
        def declare(self):
            return EngineDeclaration("strange", parameter_values={"top_k": [{1, 2}]})

    first, second = served(Strange(), {"id": 1, "op": "declare"}, {"id": 2, "op": "run", "requests": [REQUEST]})
    assert first["id"] == 1
    assert "what the adapter gave is no plain data" in first["error"]
    assert "ok" in second

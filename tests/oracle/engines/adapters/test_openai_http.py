"""What a server refuses is told from what breaks, in its own words."""

import socket

import pytest

from oracle.engines.adapters.openai_http import Server, ServerFailed, ServerRefused

BODY = {"model": "toy", "prompt": [5, 6], "max_tokens": 4, "temperature": 0.0}


def test_post_gives_what_the_server_answers(serve_toy):
    address, _ = serve_toy("vllm")
    reply = Server(address).post("/v1/completions", BODY)
    assert len(reply["choices"][0]["token_ids"]) == 4
    assert Server(address).get("/v1/models")["data"][0]["id"] == "toy"


def test_post_sends_the_key_it_is_given(serve_toy):
    address, engine = serve_toy("vllm")
    Server(address, api_key="a key").post("/v1/completions", BODY)
    Server(address).post("/v1/completions", BODY)
    assert engine.keys == ["Bearer a key", None]


def test_refusal_has_the_servers_words(serve_toy):
    address, _ = serve_toy("vllm")
    with pytest.raises(ServerRefused, match=r"^400: a token id is out of the vocabulary$"):
        Server(address).post("/v1/completions", BODY | {"prompt": [99]})


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("breaks", "failed with 500: the engine is dead"),
        ("babbles", "no object"),
        ("hangs up", "gives no answer"),
    ],
)
def test_failure_is_told_from_a_refusal(serve_toy, fault, words):
    address, engine = serve_toy("vllm")
    engine.faults.add(fault)
    with pytest.raises(ServerFailed, match=words):
        Server(address).post("/v1/completions", BODY)


def test_server_that_does_not_listen_is_a_failure():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(ServerFailed, match="gives no answer"):
        Server(f"http://127.0.0.1:{port}", timeout=5.0).get("/v1/models")


def test_stream_gives_events_until_the_server_is_done(serve_toy):
    address, _ = serve_toy("vllm")
    events = list(Server(address).stream("/v1/completions", BODY | {"stream": True}))
    assert [len(event["choices"]) for event in events] == [1] * 4


def test_loopback_is_reached_past_a_proxy(serve_toy, monkeypatch):
    address, _ = serve_toy("vllm")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert Server(address).get("/v1/models")["data"]

"""Stand-ins for engines: a small server of OpenAI's kind whose model is a hash, and packages that are not installed."""

import importlib
import json
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from oracle.engines.environments import python_of
from oracle.errors import EngineUnavailable

VOCAB_SIZE = 40
EOS_TOKEN_ID = 3

OFFICIAL_FIELDS = {
    *("model", "prompt", "max_tokens", "temperature", "top_p", "seed", "n", "presence_penalty"),
    *("frequency_penalty", "logit_bias", "logprobs", "stream"),
}

FIELDS_OF_VLLM = {
    "stop_token_ids": list,
    "min_tokens": int,
    "allowed_token_ids": list,
    "ignore_eos": bool,
    "cache_salt": str,
    "prompt_logprobs": int,
}
"""What only the dialect "vllm" reads, and of which type."""


class Refusal(Exception):
    """What the server does not take."""


def _demand(holds, words):
    if not holds:
        raise Refusal(words)


class ToyEngine:
    """Completes prompts in a dialect.

    - vllm: takes ids and gives them, and knows parameters beyond OpenAI's;
    - llama: takes ids, and gives them with log-probabilities only;
    - mlx: takes text, and log-probabilities are asked for as by OpenAI's chats;
    - strict: takes ids and nothing beyond OpenAI's parameters, and gives text;
    - text: takes text and gives text.
    """

    refusal = Refusal

    def __init__(self, dialect):
        self.dialect = dialect
        self.faults: set[str] = set()
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.num_streamed = 0
        self.start_together: threading.Barrier | None = None

    def complete(self, body):
        """Gives one choice for each answer, token by token."""
        self.bodies.append(body)
        self._check(body)
        if self.start_together is not None:
            self.start_together.wait(timeout=10)
        prompt = self._prompt_ids(body)
        return [self._choice(body, prompt, index) for index in range(body.get("n", 1))]

    def _check(self, body):
        if self.dialect == "strict":
            _demand(set(body) <= OFFICIAL_FIELDS, "extra fields are not permitted")
        if self.dialect in ("mlx", "text"):
            _demand(isinstance(body.get("logprobs", False), bool), "logprobs must be of type bool")
            _demand(isinstance(body["prompt"], str), "prompt must be a string")
        if self.dialect == "vllm":
            for name, kind in FIELDS_OF_VLLM.items():
                _demand(isinstance(body.get(name, kind()), kind), f"{name} must be of type {kind.__name__}")
            _demand(not body.get("priority"), "priority scheduling is not enabled")
        ids = self._prompt_ids(body)
        _demand(all(0 <= token_id < VOCAB_SIZE for token_id in ids), "a token id is out of the vocabulary")

    def _prompt_ids(self, body):
        prompt = body["prompt"]
        if isinstance(prompt, str):
            return [byte % VOCAB_SIZE for byte in prompt.encode()]
        return prompt

    def _read(self, body, name, default):
        return body.get(name, default) if self.dialect == "vllm" else default

    def _choice(self, body, prompt, index):
        draws = np.random.default_rng(None if body.get("seed") is None else body["seed"] + index)
        stops = [*self._read(body, "stop_token_ids", []), *([] if self._read(body, "ignore_eos", False) else [3])]
        choice = {"index": index, "ids": [], "scores": [], "finish_reason": "length", "stop_reason": None}
        while len(choice["ids"]) < body["max_tokens"] and choice["finish_reason"] == "length":
            logits = np.random.default_rng(zlib.crc32(bytes([*prompt, *choice["ids"]]))).normal(0.0, 3.0, VOCAB_SIZE)
            scores = self._processed(body, prompt, choice["ids"], logits.copy(), stops)
            token_id = self._draw(body, scores, draws)
            shown = scores if "processed" in self.faults else logits
            choice["scores"].append((shown - np.log(np.exp(shown).sum())).tolist())
            choice["ids"].append(token_id)
            if token_id in stops:
                choice["finish_reason"] = "stop"
                choice["stop_reason"] = None if token_id == EOS_TOKEN_ID else token_id
        if "hides stop" in self.faults and choice["finish_reason"] == "stop":
            choice["ids"].pop()
        return choice

    def _processed(self, body, prompt, output, scores, stops):
        for token_id, bias in (body.get("logit_bias") or {}).items():
            scores[int(token_id)] += bias
        seen = sorted({*prompt, *output})
        penalty = self._read(body, "repetition_penalty", 1.0)
        scores[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
        if len(output) < self._read(body, "min_tokens", 0):
            scores[[EOS_TOKEN_ID, *stops]] = -1e9
        allowed = self._read(body, "allowed_token_ids", None)
        return scores if allowed is None else np.where(np.isin(np.arange(VOCAB_SIZE), allowed), scores, -1e9)

    def _draw(self, body, scores, draws):
        hot = body.get("temperature", 1.0)
        is_greedy = self._read(body, "top_k", 0) == 1 or self._read(body, "min_p", 0.0) == 1.0 or hot == 0.0
        if is_greedy:
            return int(scores.argmax())
        weights = np.exp((scores - scores.max()) / hot)
        return int(draws.choice(VOCAB_SIZE, p=weights / weights.sum()))

    def shown(self, body, choice):
        """A choice as this dialect shows it."""
        place = {key: choice[key] for key in ("index", "finish_reason")}
        place["text"] = "".join(chr(0x4E00 + token_id) for token_id in choice["ids"])
        number = body.get("top_logprobs", 1) if body.get("logprobs") is True else body.get("logprobs")
        pairs = [(token_id, row) for token_id, row in zip(choice["ids"], choice["scores"], strict=False)]
        tops = [sorted(enumerate(row), key=lambda entry: -entry[1])[: number or 0] for _, row in pairs]
        if self.dialect == "vllm":
            place |= {"stop_reason": choice["stop_reason"], "token_ids": choice["ids"]}
            if number is not None:
                place["logprobs"] = {
                    "tokens": [f"token_id:{token_id}" for token_id, _ in pairs],
                    "token_logprobs": [row[token_id] for token_id, row in pairs],
                    "top_logprobs": [{f"token_id:{token_id}": score for token_id, score in top} for top in tops],
                }
            if body.get("prompt_logprobs") is not None:
                place["prompt_logprobs"] = [None, *({"7": {"logprob": -1.5, "rank": 1}} for _ in body["prompt"][1:])]
        if self.dialect in ("llama", "mlx") and number:
            place["logprobs"] = {
                "content": [
                    {
                        "id": token_id,
                        "logprob": row[token_id],
                        "top_logprobs": [{"id": other, "logprob": score} for other, score in top],
                    }
                    for (token_id, row), top in zip(pairs, tops, strict=True)
                ]
            }
        return place


class Server(ThreadingHTTPServer):
    """Serves one engine."""

    daemon_threads = True

    def __init__(self, engine):
        super().__init__(("127.0.0.1", 0), Handler)
        self.engine = engine


class Handler(BaseHTTPRequestHandler):
    """Speaks HTTP for the engine of its server."""

    server: Server

    def do_GET(self):
        engine = self.server.engine
        if "no models" in engine.faults:
            self._answer(404, {"error": "not found"})
            return
        entries = [{"id": "toy", "max_model_len": 64}, {"id": "other"}]
        self._answer(200, {"data": entries})

    def do_POST(self):
        engine = self.server.engine
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        engine.keys.append(self.headers["Authorization"])
        fault = next((fault for fault in engine.faults if fault in ("breaks", "babbles", "hangs up")), None)
        if fault == "breaks":
            self._answer(500, {"error": {"message": "the engine is dead"}})
        elif fault == "babbles":
            self._answer(200, ["no", "object"])
        elif fault == "hangs up":
            self.close_connection = True
        else:
            self._complete(engine, body)

    def _complete(self, engine, body):
        try:
            choices = [engine.shown(body, choice) for choice in engine.complete(body)]
        except Refusal as refusal:
            self._answer(400, {"error": {"message": str(refusal), "type": "invalid"}})
            return
        if body.get("stream"):
            self._stream(engine, choices)
            return
        if "no ids" in engine.faults:
            choices = [{"text": choice["text"], "index": choice["index"]} for choice in choices]
        usage = {"prompt_tokens_details": {"cached_tokens": len(body["prompt"]) - 1}}
        self._answer(200, {"choices": choices[::-1], "usage": usage})

    def _stream(self, engine, choices):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for choice in choices:
            for place, token_id in enumerate(choice.get("token_ids", range(len(choice["text"])))):
                piece = {"index": choice["index"], "text": choice["text"][place]}
                if engine.dialect == "vllm":
                    piece["token_ids"] = [token_id]
                if place + 1 == len(choice["text"]):
                    piece["finish_reason"] = choice["finish_reason"]
                try:
                    self.wfile.write(f"data: {json.dumps({'choices': [piece]})}\n\n".encode())
                except OSError:
                    return
                engine.num_streamed += 1
        self.wfile.write(b"data: [DONE]\n\n")

    def _answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Says nothing."""


@pytest.fixture
def stand_in():
    """Gives a function that makes a module out of names and what they stand for."""

    def make(name, **attributes):
        module = ModuleType(name)
        vars(module).update(attributes)
        return module

    return make


@pytest.fixture
def import_with(monkeypatch):
    """Gives a function that imports a module beside stand-ins for packages that are not installed here."""

    def import_module(name, **stand_ins):
        for package, stand_in in stand_ins.items():
            monkeypatch.setitem(sys.modules, package, stand_in)
        monkeypatch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)  # at the end what was imported before, if anything, comes back
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return import_module


@pytest.fixture
def serve_toy():
    """Gives a function that serves a dialect on this machine; gives its address and its engine."""
    servers = []

    def serve(dialect):
        server = Server(ToyEngine(dialect))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}", server.engine

    yield serve
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


@pytest.fixture
def installed_python():
    """Gives the Python of an engine's environment, and skips the test where the engine is not installed."""

    def python_or_skip(engine: str) -> Path:
        try:
            return python_of(engine)
        except EngineUnavailable as error:
            pytest.skip(str(error))

    return python_or_skip

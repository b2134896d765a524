"""What does a server of OpenAI's kind take and give? It does not say so, and is asked a few short requests."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from oracle.engines.adapters.openai_answers import join_events, read_output
from oracle.engines.adapters.openai_dialect import EXTENSIONS, ID_FIELDS, Dialect, completion_body
from oracle.engines.adapters.openai_http import Server, ServerFailed, ServerRefused
from oracle.engines.messages import EngineRequest, EngineSample

COMPLETIONS = "/v1/completions"

PROMPTS = tuple(tuple(range(start, start + 4)) for start in (11, 15, 19, 23, 27))
"""Any tokens do; the first few of a vocabulary often mean something special."""

ENOUGH_TOKENS = 3
"""An answer that is shorter cannot be told from one that was ended early."""

NUM_TOKENS = 8
"""Enough for a draw to differ from the greedy choice somewhere."""

HOT = {"temperature": 2.0}
"""The most that OpenAI's protocol takes."""

_NEVER = 1e6
"""A repetition penalty after which nothing is repeated."""

_NEARLY_SURE = -1e-3
"""A log-probability that only a token with a bias has, where the bias counts."""


def probe(server: Server, model: str | None = None) -> Dialect:
    """Finds out how a server is spoken to.

    Args:
        server: What is asked.
        model: The model that requests name; None for the first that the server lists.

    Raises:
        ServerRefused: It completes nothing.
        ServerFailed: It cannot be reached, or gives no answer that could be read.
    """
    entry = _model_entry(server, model)
    prober = _Prober(server, _basics(server, str(entry["id"])))
    max_model_len = entry.get("max_model_len")
    return replace(
        prober.dialect,
        extensions=prober.extensions(),
        scores_of=prober.scores_of(),
        shows_stop_token=prober.shows_stop_token(),
        is_seeded=prober.is_seeded(),
        streams=prober.streams(),
        max_model_len=max_model_len if isinstance(max_model_len, int) else None,
    )


def _model_entry(server: Server, model: str | None) -> dict[str, Any]:
    """What the server says of the model; where it does not list models, at least its name."""
    try:
        entries = [entry for entry in server.get("/v1/models").get("data", ()) if "id" in entry]
    except (ServerRefused, ServerFailed) as error:
        if model is None:
            message = f"{server.base_url} lists no models ({error}); name the one to ask for"
            raise ServerFailed(message) from error
        entries = []
    for entry in entries:
        if model in (None, entry["id"]):
            return dict(entry)
    if model is None:
        message = f"{server.base_url} lists no models; name the one to ask for"
        raise ServerFailed(message)
    return {"id": model}


def _basics(server: Server, model: str) -> Dialect:
    """Tries the ways of asking from the most telling to the poorest, and keeps the first that is answered."""
    refusal: ServerRefused | None = None
    poorest: Dialect | None = None
    for takes_ids in (True, False):
        for id_fields in (ID_FIELDS, ()):
            for logprobs in ("count", "flag", None):
                dialect = Dialect(model, takes_ids=takes_ids, id_fields=id_fields, logprobs=logprobs)
                try:
                    found = _with_ids(server, dialect)
                except ServerRefused as error:
                    refusal = error
                    continue
                if found.gives_ids:
                    return found
                poorest = poorest or found
    if poorest is not None:
        return poorest
    raise refusal or ServerRefused(COMPLETIONS)


def _with_ids(server: Server, dialect: Dialect) -> Dialect:
    """Sees whether ids come back, with log-probabilities or without."""
    parameters = {} if dialect.logprobs is None else {"logprobs": 2}
    request = EngineRequest("probe", PROMPTS[0], 2, parameters)
    reply = server.post(COMPLETIONS, completion_body(request, dialect))
    try:
        sample = read_output(request, reply, dialect).samples[0]
    except ServerFailed:
        return replace(dialect, gives_ids=False, logprobs=None)
    if dialect.logprobs is None:
        return dialect
    if sample.logprobs is None:
        return replace(dialect, logprobs=None)
    bare = server.post(COMPLETIONS, completion_body(replace(request, parameters={}), dialect))
    try:
        read_output(request, bare, replace(dialect, logprobs=None))
    except ServerFailed:
        return replace(dialect, ids_need_logprobs=True)
    return dialect


@dataclass
class _Prober:
    """Tells by effects what a server reads."""

    server: Server
    dialect: Dialect
    prompt: tuple[int, ...] = PROMPTS[0]
    greedy: EngineSample = field(init=False)
    hot: EngineSample | None = field(init=False)

    def __post_init__(self) -> None:
        self.greedy = EngineSample(())
        for prompt in PROMPTS:
            answer = self._answer(prompt, {})
            if answer is not None and len(answer.token_ids) > len(self.greedy.token_ids):
                self.prompt, self.greedy = prompt, answer
            if len(self.greedy.token_ids) >= ENOUGH_TOKENS:
                break
        if not self.greedy.token_ids:
            message = f"{self.server.base_url} answers {len(PROMPTS)} prompts with nothing"
            raise ServerFailed(message)
        self.hot = self._ask(seed=1, **HOT)

    def extensions(self) -> tuple[str, ...]:
        """Gives those of `EXTENSIONS` that the server reads."""
        found = {
            "top_k": self._makes_greedy(top_k=1),
            "min_p": self._makes_greedy(min_p=1.0),
            "repetition_penalty": self._never_repeats(),
            "ignore_eos": self._reads("ignore_eos", good=True),
            "priority": self._reads("priority", good=1),
            "cache_salt": self._reads("cache_salt", good="salt"),
        }
        if self.dialect.gives_ids:
            found |= {
                "stop_token_ids": self._stopped() is not None,
                "min_tokens": self._stopped() is not None and self._stopped(min_tokens=2) is None,
                "allowed_token_ids": self._keeps_to_allowed(),
                "prompt_logprobs": self._shows_prompt_logprobs(),
            }
        return tuple(name for name in EXTENSIONS if found.get(name))

    def scores_of(self) -> str:
        """Tells whether a bias shows in log-probabilities."""
        other = self._other_token()
        if self.dialect.logprobs is None or other is None:
            return "model"
        seen = self._ask(logit_bias=[(other, 100.0)], logprobs=1)
        if seen is None or not seen.logprobs or seen.token_ids[:1] != (other,):
            return "model"
        return "processed" if seen.logprobs[0] > _NEARLY_SURE else "model"

    def shows_stop_token(self) -> bool:
        """Tells whether a stop token stands in the output; where it cannot be seen, that it does."""
        stopped = self._stopped() if self.dialect.gives_ids else None
        return stopped is None or len(stopped.token_ids) == 1

    def is_seeded(self) -> bool:
        """Tells whether a seed gives the same draws again, and another seed others."""
        again, other = self._ask(seed=1, **HOT), self._ask(seed=2, **HOT)
        return _ids(self.hot) is not None and _ids(self.hot) == _ids(again) != _ids(other)

    def streams(self) -> bool:
        """Tells whether an answer can be had piece by piece, and be hung up on."""
        request = EngineRequest("probe", self.prompt, NUM_TOKENS)
        body = completion_body(request, self.dialect) | {"stream": True}
        try:
            with closing(self.server.stream(COMPLETIONS, body)) as events:
                reply = join_events(events, NUM_TOKENS)
            return read_output(request, reply, self.dialect).samples[0].token_ids == self.greedy.token_ids
        except (ServerRefused, ServerFailed, IndexError):
            return False

    def _ask(self, **parameters: Any) -> EngineSample | None:
        return self._answer(self.prompt, parameters)

    def _answer(self, prompt: tuple[int, ...], parameters: dict[str, Any]) -> EngineSample | None:
        """Gives the first answer, or nothing where the server refuses."""
        request = EngineRequest("probe", prompt, NUM_TOKENS, parameters)
        try:
            reply = self.server.post(COMPLETIONS, completion_body(request, self.dialect))
        except ServerRefused:
            return None
        output = read_output(request, reply, self.dialect)
        if not output.samples:
            return None
        return output.samples[0]

    def _makes_greedy(self, **parameters: Any) -> bool:
        """Whether a parameter turns a hot draw into the greedy choice, which it is not without."""
        seen = self._ask(seed=1, **HOT, **parameters)
        return _ids(self.hot) not in (None, self.greedy.token_ids) and _ids(seen) == self.greedy.token_ids

    def _never_repeats(self) -> bool:
        seen = self._ask(repetition_penalty=_NEVER)
        if seen is None or seen.token_ids == self.greedy.token_ids:
            return False
        return not self.dialect.gives_ids or len({*self.prompt, *seen.token_ids}) == len(self.prompt) + len(
            seen.token_ids
        )

    def _stopped(self, **parameters: Any) -> EngineSample | None:
        """An answer that the first greedy token ended at once, where it did."""
        seen = self._ask(stop_token_ids=[self.greedy.token_ids[0]], **parameters)
        is_ended = seen is not None and seen.finish_reason == "stop" and len(seen.token_ids) <= 1
        return seen if seen is not None and is_ended and len(seen.token_ids) < len(self.greedy.token_ids) else None

    def _keeps_to_allowed(self) -> bool:
        other = self._other_token()
        seen = None if other is None else self._ask(allowed_token_ids=[other])
        return seen is not None and set(seen.token_ids) == {other}

    def _other_token(self) -> int | None:
        """A token that the greedy choice does not begin with."""
        return next((token_id for token_id in self.prompt if token_id != self.greedy.token_ids[0]), None)

    def _shows_prompt_logprobs(self) -> bool:
        request = EngineRequest("probe", self.prompt, 1, {"prompt_logprobs": 1})
        try:
            reply = self.server.post(COMPLETIONS, completion_body(request, self.dialect))
        except ServerRefused:
            return False
        return read_output(request, reply, self.dialect).prompt_logprobs is not None

    def _reads(self, name: str, *, good: Any) -> bool:
        """Whether a field is taken with a value that makes sense, and refused with one that does not."""
        return self._ask(**{name: good}) is not None and self._ask(**{name: {"no": "sense"}}) is None


def _ids(sample: EngineSample | None) -> Sequence[int] | None:
    return None if sample is None else sample.token_ids

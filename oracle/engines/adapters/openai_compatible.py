"""An adapter for any server that speaks OpenAI's completions: what it serves is asked as it stands."""

import urllib.parse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from oracle.engines.adapter import Refused
from oracle.engines.adapters.openai_answers import join_events, read_output
from oracle.engines.adapters.openai_dialect import STANDARD_PARAMETERS, Dialect, completion_body
from oracle.engines.adapters.openai_http import Server, ServerRefused
from oracle.engines.adapters.openai_probe import COMPLETIONS, probe
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun


class OpenAiCompatibleAdapter:
    """A server that runs already, behind its address.

    Requests go to it at once, each on a connection of its own, and run together as far as the server lets them.
    It loads nothing: a checkpoint folder is not sent anywhere. Without a reference for what it serves, its answers
    can be held against each other: alone, in company, again and warm.

    Args:
        base_url: Where it listens, with or without `/v1`; `#model=NAME&dtype=float32` after it names what follows.
        model: Which of its models is asked; None for the first that it lists.
        dtype: What it computes in, which it does not say; the coarsest of those that are usual unless told.
        api_key: Sent along with each request, where it wants one.
        timeout: Seconds within which it must answer each request.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        dtype: str | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
    ) -> None:
        address, _, fragment = base_url.partition("#")
        options = dict(urllib.parse.parse_qsl(fragment, strict_parsing=bool(fragment)))
        self._model = model or options.pop("model", None)
        self._dtype = dtype or options.pop("dtype", "bfloat16")
        if options:
            message = f"{base_url} has {', '.join(options)} after its #, where only model and dtype may stand"
            raise ValueError(message)
        self._server = Server(address.rstrip("/").removesuffix("/v1"), api_key, timeout)
        self._dialect: Dialect | None = None

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`; the server is asked a few short requests, once."""
        dialect = self._found()
        capabilities = ["batching"]
        if dialect.streams:
            capabilities.append("aborts")
        if dialect.logprobs is not None:
            capabilities += ["logprobs", "top_logprobs"]
        if "prompt_logprobs" in dialect.extensions:
            capabilities.append("prompt_logprobs")
        if dialect.is_seeded:
            capabilities.append("seeded_sampling")
        units = "characters" if not dialect.gives_ids else "tokens" if dialect.takes_ids else "tokens-of-text"
        scored = () if dialect.logprobs is None else ("logprobs",)
        return EngineDeclaration(
            name=f"{self._server.base_url} ({dialect.model})",
            capabilities=tuple(capabilities),
            parameters=(*STANDARD_PARAMETERS, *dialect.extensions, *scored),
            needed_parameters={"n": "temperature"},  # servers refuse several answers where nothing is drawn
            families=(),
            dtype=self._dtype,
            ignore_eos="emits" if "ignore_eos" in dialect.extensions else "never",
            shows_stop_token=dialect.shows_stop_token,
            scores_of=dialect.scores_of,
            max_model_len=dialect.max_model_len or 256,
            witnesses=("cached_tokens",),
            units=units,
        )

    def open(self, folder: str, knobs: dict[str, Any]) -> None:  # noqa: ARG002 - the server has its model already
        """See `EngineAdapter.open`; sees that the server answers."""
        if knobs:
            message = f"a server's settings are its own: {', '.join(knobs)} cannot be set from here"
            raise Refused(message)
        self._found()

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`."""
        dialect = self._found()
        if not requests:
            return EngineRun(())
        with ThreadPoolExecutor(max_workers=len(requests)) as pool:
            answers = list(pool.map(lambda request: self._answer(request, dialect), requests))
        num_cached = sum(num for _, num in answers)
        return EngineRun(tuple(output for output, _ in answers), {"cached_tokens": num_cached})

    def close(self) -> None:
        """See `EngineAdapter.close`; the server runs on."""

    def _found(self) -> Dialect:
        if self._dialect is None:
            try:
                self._dialect = probe(self._server, self._model)
            except ServerRefused as error:
                message = f"{self._server.base_url} completes no prompt: {error}"
                raise Refused(message) from error
        return self._dialect

    def _answer(self, request: EngineRequest, dialect: Dialect) -> tuple[EngineOutput, int]:
        """Sends one request; gives its output, and how many of its tokens were cached."""
        body = completion_body(request, dialect)
        try:
            if request.abort_after is None:
                reply = self._server.post(COMPLETIONS, body)
            else:
                with closing(self._server.stream(COMPLETIONS, {**body, "stream": True})) as events:
                    reply = join_events(events, request.abort_after)
        except ServerRefused as error:
            return EngineOutput(request.request_id, refused=str(error)), 0
        details = (reply.get("usage") or {}).get("prompt_tokens_details") or {}
        return read_output(request, reply, dialect), details.get("cached_tokens") or 0

"""`LLM`: prompts in, answers out."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from inspect import GEN_CLOSED, getgeneratorstate
from itertools import count
from pathlib import Path
from typing import cast
from weakref import ref

from refinfer.config.engine_config import engine_config
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import LLMEngine, make_states
from refinfer.engine.inputs import (
    Params,
    Prompt,
    Prompts,
    list_conversations,
    list_params,
    list_prompts,
    refuse_unknown,
)
from refinfer.engine.loading import LoadedModel
from refinfer.engine.output import RequestOutput
from refinfer.model import Llama
from refinfer.scheduler import Request, RequestState
from refinfer.tokenizer import Tokenizer

Conversation = Sequence[Mapping[str, str]]
"""Messages, each with "role" and "content"."""

_ARGUMENTS = ("prompts", "params")


class LLM:
    """A model, its tokenizer, and a way of running them.

    Args:
        model: A checkpoint folder, the name of a fetched model, a hub id, or a model that is loaded already.
        options: The settings of `EngineConfig`.

    Attributes:
        engine: What serves the requests; its prefix cache lasts from one call to the next.
        config: The settings, checked.
        model: The loaded model.
        tokenizer: The checkpoint's tokenizer, or None where it has none; then prompts are token ids only.
        eos_token_ids: Ids that end a request.
        max_model_len: Longest request in tokens, prompt and output together.

    Raises:
        ConfigError: An option is unknown, or cannot work with this model.
        CheckpointError: The folder cannot be loaded as it stands.
    """

    def __init__(self, model: str | Path | LoadedModel, **options: object) -> None:
        self.engine = LLMEngine(model, engine_config(**options))
        self.config = self.engine.config
        self.model: Llama = self.engine.loaded.model
        self.tokenizer: Tokenizer | None = self.engine.loaded.tokenizer
        self.eos_token_ids = self.engine.loaded.eos_token_ids
        self.max_model_len = self.engine.max_model_len
        self._ids = count()
        self._undelivered_by_id: dict[str, deque[RequestOutput]] = {}
        self._streams: list[tuple[ref[Generator[RequestOutput, None, None]], list[str]]] = []

    def generate(
        self,
        prompts: Prompts,
        params: Params = None,
        **unknown: object,
    ) -> list[RequestOutput]:
        """Answers prompts, in the order given.

        Args:
            prompts: Texts or lists of token ids; one alone may stand without a list around it. Arrays and tensors
                are taken like lists, so are generators; `{"prompt": …}` and `{"prompt_token_ids": …}` like what they
                hold.
            params: One for all prompts, or one for each; None means `SamplingParams()`.
            unknown: None: any other argument is refused by name.

        Raises:
            RequestError: A prompt cannot be accepted; the message names its index, and nothing has run.
        """
        refuse_unknown("generate", unknown, _ARGUMENTS)
        output_by_id = {output.request_id: output for output in self.stream(prompts, params)}
        return sorted(output_by_id.values(), key=lambda output: int(output.request_id))

    def chat(
        self,
        messages: Conversation | Iterable[Conversation],
        params: Params = None,
        **unknown: object,
    ) -> list[RequestOutput]:
        """Answers conversations through the checkpoint's chat template.

        Args:
            messages: One conversation, or a list of them; a message has "role" and "content".
            params: One for all conversations, or one for each; None means `SamplingParams()`.
            unknown: None: any other argument is refused by name.

        Raises:
            ConfigError: The checkpoint has no tokenizer or no chat template.
            RequestError: A conversation cannot be accepted; nothing has run.
        """
        refuse_unknown("chat", unknown, ("messages", "params"))
        tokenizer = self.engine.maker.require_tokenizer()
        conversations = cast("list[Conversation]", list_conversations(messages))
        return self.generate([tokenizer.encode_chat(conversation) for conversation in conversations], params)

    def stream(
        self,
        prompts: Prompts,
        params: Params = None,
        **unknown: object,
    ) -> Iterator[RequestOutput]:
        """Gives, after each step, what every request that advanced has so far.

        Requests of several streams run together, and each stream gives its own. One that is closed
        before its end, or that meets an error, aborts its requests.

        Args:
            prompts: As for `generate`.
            params: As for `generate`.
            unknown: As for `generate`.

        Raises:
            RequestError: A prompt cannot be accepted; raised by the call itself, before anything runs.
        """
        refuse_unknown("stream", unknown, _ARGUMENTS)
        self._drop_closed_streams()
        requests = self.make_requests(prompts, params)
        stream = self._run(requests)
        self._streams.append((ref(stream), [request.request_id for request in requests]))
        return stream

    def make_requests(
        self,
        prompts: Prompts,
        params: Params = None,
    ) -> list[Request]:
        """Checks prompts and makes requests of them, named by numbers that go on from call to call.

        Raises:
            RequestError: A prompt cannot be accepted; the message names its index.
        """
        prompt_list = list_prompts(prompts)
        pairs = zip(prompt_list, list_params(params, len(prompt_list)), strict=True)
        return [
            self.engine.maker.make(str(next(self._ids)), cast("Prompt", prompt), own, name=f"prompt {index}")
            for index, (prompt, own) in enumerate(pairs)
        ]

    def start(self, requests: Sequence[Request]) -> tuple[EngineCore, list[RequestState]]:
        """Sets up a run of its own for some requests, over empty caches; nothing runs until the core's `step`.

        Returns:
            The core, and every sample of every request, in order.
        """
        core = self.engine.new_core()
        states = [state for request in requests for state in make_states(request)]
        for state in states:
            core.add(state)
        return core, states

    def _run(self, requests: Sequence[Request]) -> Generator[RequestOutput, None, None]:
        queue: deque[RequestOutput] = deque()
        ids = [request.request_id for request in requests]
        unfinished = deque(ids)
        try:
            self._undelivered_by_id.update(dict.fromkeys(ids, queue))
            untold = {request.request_id: self.engine.add(request) for request in requests}
            while queue or self._has_unfinished(unfinished):
                if queue:
                    output = queue.popleft()
                    if output.finished:
                        del untold[output.request_id]
                    yield output
                    continue
                for output in self.engine.step():
                    if output.request_id in self._undelivered_by_id:  # else it was added to the engine itself
                        self._undelivered_by_id[output.request_id].append(output)
            for samples in untold.values():  # whose end came in a step of another stream that was interrupted
                yield samples.output()
        finally:
            self._drop(ids)

    def _drop(self, ids: Sequence[str]) -> None:
        """Abort the requests of a stream, and deliver no more of them."""
        for request_id in ids:
            self._undelivered_by_id.pop(request_id, None)
            if self.engine.is_unfinished(request_id):
                self.engine.abort_request(request_id)

    def _drop_closed_streams(self) -> None:
        """Abort what is left of streams that are closed: a second interrupt may have stopped their own clean-up."""
        for entry in list(self._streams):
            stream = entry[0]()
            if stream is None or getgeneratorstate(stream) == GEN_CLOSED:
                self._drop(entry[1])
                self._streams.remove(entry)

    def _has_unfinished(self, ids: deque[str]) -> bool:
        """Tells whether one of the requests goes on; those at the front that have ended are taken away.

        So each is asked about once after its end, and a step costs no more after many ends than after few.
        """
        while ids and not self.engine.is_unfinished(ids[0]):
            ids.popleft()
        return bool(ids)

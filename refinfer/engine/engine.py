"""`LLMEngine`: requests come and go while others run, and each step tells what every one of them has so far."""

from dataclasses import dataclass
from pathlib import Path

from refinfer.config import EngineConfig, ModelConfig
from refinfer.engine.answer import Answer
from refinfer.engine.assembly import load_draft_model, make_core
from refinfer.engine.core import EngineCore
from refinfer.engine.inputs import Prompt, refuse_unknown
from refinfer.engine.loading import LoadedModel
from refinfer.engine.output import RequestOutput
from refinfer.engine.requests import RequestMaker
from refinfer.engine.sizing import decide_max_model_len
from refinfer.engine.statistics import EngineStats
from refinfer.errors import DuplicateRequestError, UnknownRequestError
from refinfer.hub import resolve_model
from refinfer.model.checkpoint import resolve_dtype
from refinfer.sampling import SamplingParams
from refinfer.scheduler import Request, RequestState


@dataclass(frozen=True)
class Samples:
    """All samples of one request, and what each has given."""

    request: Request
    states: tuple[RequestState, ...]
    answers: tuple[Answer, ...]

    @property
    def is_finished(self) -> bool:
        """Whether all have ended."""
        return all(state.is_finished for state in self.states)

    def output(self) -> RequestOutput:
        """Gives everything known of the request."""
        return RequestOutput(
            request_id=self.request.request_id,
            prompt=self.request.prompt,
            prompt_token_ids=list(self.request.prompt_token_ids),
            prompt_logprobs=self.answers[0].prompt_logprobs,
            outputs=[answer.output() for answer in self.answers],
            finished=self.is_finished,
            num_cached_tokens=self.states[0].num_cached_tokens,
            seed=None if self.request.params.is_greedy else self.request.seed,
        )


class LLMEngine:
    """A model, a way of running it, and the requests that it serves.

    Args:
        model: A checkpoint folder, the name of a fetched model, a hub id, or a model that is loaded already.
        config: The settings; None means `EngineConfig()`.

    Attributes:
        config: The settings.
        loaded: The model, its tokenizer, and the ids that end a request.
        max_model_len: Longest request in tokens, prompt and output together.
        core: What runs the steps.
        maker: What makes requests of prompts, and refuses those that can never run.

    Raises:
        ConfigError: The settings cannot work with this model.
        CheckpointError: The folder cannot be loaded as it stands.
    """

    def __init__(self, model: str | Path | LoadedModel, config: EngineConfig | None = None) -> None:
        self.config = EngineConfig() if config is None else config
        if isinstance(model, LoadedModel):
            self.max_model_len = decide_max_model_len(model.model.config, model.model.dtype, self.config)
            self.loaded = model
        else:
            # What does not fit is refused at once, and not after many gigabytes of weights.
            folder = resolve_model(model)
            shape = ModelConfig.from_folder(folder)
            self.max_model_len = decide_max_model_len(
                shape, resolve_dtype(self.config.dtype, shape, folder), self.config
            )
            self.loaded = LoadedModel.load(folder, dtype=self.config.dtype, batch_invariant=self.config.batch_invariant)
        self._draft_model = load_draft_model(self.config, self.loaded.model)
        self.core = self.new_core()
        self.maker = RequestMaker(self.loaded, self.max_model_len)
        self._samples_by_id: dict[str, Samples] = {}
        # What a call that stops anywhere, as Ctrl-C does, leaves for the next one to see to:
        self._arriving: Request | None = None
        self._told_ids: tuple[str, ...] = ()
        self._has_untold = False

    def new_core(self) -> EngineCore:
        """Makes a core like this engine's own, with empty caches and no requests."""
        return make_core(self.loaded, self.config, self.max_model_len, self._draft_model)

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
        **unknown: object,
    ) -> None:
        """Queues a request.

        Args:
            request_id: A name that no unfinished request has.
            prompt: A text, or token ids; arrays, tensors and the rest as for `LLM.generate`.
            params: Its sampling parameters; None means `SamplingParams()`.
            cache_salt: Only requests with the same salt share the keys and values of a common prefix.
            unknown: None: any other argument is refused by name.

        Raises:
            RequestError: The request can never run; others go on.
            SamplingParamsError: The parameters do not fit the model.
        """
        refuse_unknown("add_request", unknown, ("request_id", "prompt", "params", "cache_salt"))
        params = SamplingParams() if params is None else params
        self.add(self.maker.make(request_id, prompt, params, name=f"request {request_id!r}", cache_salt=cache_salt))

    def add(self, request: Request) -> Samples:
        """Queues a request whose prompt and parameters were checked already; return what it will have given.

        Raises:
            DuplicateRequestError: An unfinished request has its name.
        """
        self._settle()
        request_id = request.request_id
        if request_id in self._samples_by_id:
            message = f"request id {request_id!r} is in use; wait until that request has ended, or take another"
            raise DuplicateRequestError(message, request_id=request_id)
        states = make_states(request)
        self._arriving = request
        samples = Samples(request, states, tuple(self.core.add(state) for state in states))
        self._samples_by_id[request_id] = samples
        self._arriving = None
        return samples

    def step(self) -> list[RequestOutput]:
        """Runs one step.

        Returns:
            What every request that got a token, or ended, has so far; requests that ended are not named again.
            A request that only ran a part of its prompt is not among them.
        """
        self._settle()
        has_untold, self._has_untold = self._has_untold, True
        rows = self.core.step()
        named = dict.fromkeys(row.state.request.request_id for row in rows if row.token_ids)
        if has_untold:  # the last step stopped before its end, and requests may have ended in it
            named.update(dict.fromkeys(name for name, own in self._samples_by_id.items() if own.is_finished))
        outputs = [self._output(request_id) for request_id in named]
        told_ids = tuple(output.request_id for output in outputs if output.finished)
        self._told_ids, self._has_untold = told_ids, False
        return outputs

    def abort_request(self, request_id: str) -> RequestOutput:
        """Ends a request wherever it is, and gives what it has.

        Raises:
            UnknownRequestError: No unfinished request has this name.
        """
        self._settle()
        samples = self._samples_by_id.get(request_id)
        if samples is None:
            message = f"no unfinished request is named {request_id!r}; it never came, or has ended"
            raise UnknownRequestError(message, request_id=request_id)
        has_untold, self._has_untold = self._has_untold, True
        for state in samples.states:
            if not state.is_finished:
                self.core.abort(state)
        output = self._output(request_id)
        self._told_ids, self._has_untold = (request_id,), has_untold
        return output

    def is_unfinished(self, request_id: str) -> bool:
        """Tells whether a request of this name waits or runs."""
        self._settle()
        return request_id in self._samples_by_id

    def has_unfinished_requests(self) -> bool:
        """Tells whether another step has something to run, or to tell."""
        self._settle()
        return bool(self._samples_by_id)

    def stats(self) -> EngineStats:
        """Gives what the engine has done so far, in numbers."""
        self._settle()
        return self.core.stats()

    def _output(self, request_id: str) -> RequestOutput:
        return self._samples_by_id[request_id].output()

    def _settle(self) -> None:
        """Forget who was told of his end, and do what the last call has left if it stopped before its own."""
        self.core.recover()
        for request_id in self._told_ids:
            self._samples_by_id.pop(request_id, None)
        self._told_ids = ()
        if self._arriving is not None:
            for state in list(self.core.answers):
                if state.request is self._arriving and self._arriving.request_id not in self._samples_by_id:
                    self.core.abort(state)
            self._arriving = None


def make_states(request: Request) -> tuple[RequestState, ...]:
    """Makes the samples of a request; all but the first share what the first computes of the prompt."""
    first = RequestState(request)
    others = (RequestState(request, sample_index=i, first_sample=first) for i in range(1, request.params.n))
    return (first, *others)

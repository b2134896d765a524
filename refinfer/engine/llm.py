"""`LLM`: prompts in, answers out."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from refinfer.config import load_eos_token_ids
from refinfer.config.engine_config import engine_config
from refinfer.engine.generation import Generation
from refinfer.engine.output import CompletionOutput, RequestOutput
from refinfer.errors import (
    ConfigError,
    EmptyPromptError,
    PromptTooLongError,
    RequestError,
    TokenIdError,
)
from refinfer.hub import resolve_model
from refinfer.model import load_model
from refinfer.sampling import SamplingParams
from refinfer.scheduler import Request, RequestState
from refinfer.tokenizer import IncrementalDetokenizer, Tokenizer

Prompt = str | Sequence[int]
"""A text, or token ids."""

Conversation = Sequence[Mapping[str, str]]
"""Messages, each with "role" and "content"."""


class LLM:
    """A model, its tokenizer, and a way of running them.

    Args:
        model: A checkpoint folder, the name of a fetched model, or a hub id.
        options: The settings of `EngineConfig`.

    Attributes:
        config: The settings, checked.
        model: The loaded model.
        tokenizer: The checkpoint's tokenizer, or None where it has none; then prompts are token ids only.
        eos_token_ids: Ids that end a request.
        max_model_len: Longest request in tokens, prompt and output together.

    Raises:
        ConfigError: An option is unknown, not implemented yet, or cannot work with this model.
        CheckpointError: The folder cannot be loaded as it stands.
    """

    def __init__(self, model: str | Path, **options: object) -> None:
        self.config = engine_config(**options)
        folder = resolve_model(model)
        self.model = load_model(folder, dtype=self.config.dtype, batch_invariant=self.config.batch_invariant)
        self.tokenizer = Tokenizer.from_folder(folder) if Tokenizer.exists(folder) else None
        self.eos_token_ids = load_eos_token_ids(folder)
        longest = self.model.config.max_position_embeddings
        self.max_model_len = longest if self.config.max_model_len is None else self.config.max_model_len
        if self.max_model_len > longest:
            message = (
                f"max_model_len {self.max_model_len} is more than the {longest} positions "
                f"that the model was made for (max_position_embeddings)"
            )
            raise ConfigError(message, max_model_len=self.max_model_len, max_position_embeddings=longest)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answers prompts, in the order given.

        Args:
            prompts: Texts or lists of token ids; one alone may stand without a list around it.
            params: One for all prompts, or one for each; None means `SamplingParams()`.

        Raises:
            RequestError: A prompt cannot be accepted; the message names its index, and nothing has run.
        """
        output_by_id = {output.request_id: output for output in self.stream(prompts, params)}
        return sorted(output_by_id.values(), key=lambda output: int(output.request_id))

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answers conversations through the checkpoint's chat template.

        Args:
            messages: One conversation, or a list of them; a message has "role" and "content".
            params: One for all conversations, or one for each; None means `SamplingParams()`.

        Raises:
            ConfigError: The checkpoint has no tokenizer or no chat template.
            RequestError: A conversation cannot be accepted; nothing has run.
        """
        tokenizer = self._require_tokenizer()
        is_one = bool(messages) and isinstance(messages[0], Mapping)
        conversations = cast("Sequence[Conversation]", [messages] if is_one else messages)
        return self.generate([tokenizer.encode_chat(conversation) for conversation in conversations], params)

    def stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> Iterator[RequestOutput]:
        """Gives, after each step, what every request that advanced has so far.

        Args:
            prompts: As for `generate`.
            params: As for `generate`.

        Raises:
            RequestError: A prompt cannot be accepted; raised by the call itself, before anything runs.
        """
        requests = self.make_requests(prompts, params)
        return self._run(self.start(requests))

    def make_requests(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Request]:
        """Checks prompts and makes requests of them, named "0", "1", … in the order given.

        Raises:
            RequestError: A prompt cannot be accepted; the message names its index.
        """
        is_one = isinstance(prompts, str) or (bool(prompts) and isinstance(prompts[0], int))
        prompt_list = cast("list[Prompt]", [prompts] if is_one else list(prompts))
        params = SamplingParams() if params is None else params
        params_list = [params] * len(prompt_list) if isinstance(params, SamplingParams) else list(params)
        if len(params_list) != len(prompt_list):
            message = (
                f"{len(prompt_list)} prompts were given with {len(params_list)} sampling parameters; "
                "give one for all or one for each"
            )
            raise RequestError(message, num_prompts=len(prompt_list), num_params=len(params_list))
        pairs = zip(prompt_list, params_list, strict=True)
        return [self._make_request(index, prompt, own) for index, (prompt, own) in enumerate(pairs)]

    def start(self, requests: Sequence[Request]) -> Generation:
        """Sets up a run of its own for some requests; nothing runs until its `step`."""
        return Generation(
            self.model,
            self.config,
            requests,
            eos_token_ids=frozenset(self.eos_token_ids),
            max_model_len=self.max_model_len,
        )

    def _run(self, generation: Generation) -> Iterator[RequestOutput]:
        writers = {state: _Writer(self.tokenizer) for state in generation.states}
        while generation.has_unfinished_requests():
            for row in generation.step():
                yield writers[row.state].output(row.state, row.token_id)

    def _make_request(self, index: int, prompt: Prompt, params: SamplingParams) -> Request:
        text = prompt if isinstance(prompt, str) else None
        token_ids = self._require_tokenizer().encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not token_ids:
            message = f"prompt {index} has no token; give at least one"
            raise EmptyPromptError(message, index=index)
        if len(token_ids) >= self.max_model_len:
            message = (
                f"prompt {index} has {len(token_ids)} tokens; max_model_len {self.max_model_len} "
                f"leaves room for {self.max_model_len - 1} and one output token"
            )
            raise PromptTooLongError(message, index=index, num_tokens=len(token_ids))
        vocab_size = self.model.config.vocab_size
        for token_id in token_ids:
            if not 0 <= token_id < vocab_size:
                message = f"prompt {index} has token id {token_id}; the vocabulary has 0 to {vocab_size - 1}"
                raise TokenIdError(message, index=index, token_id=token_id)
        return Request(str(index), text, tuple(token_ids), params)

    def _require_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            message = "this checkpoint has no tokenizer, so prompts must be token ids; add tokenizer.json for text"
            raise ConfigError(message)
        return self.tokenizer


class _Writer:
    """Turns the tokens of one request into its outputs, text included as it becomes certain."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._detokenizer = None if tokenizer is None else IncrementalDetokenizer(tokenizer)
        self._text = ""

    def output(self, state: RequestState, token_id: int) -> RequestOutput:
        """Gives everything known of the request after its newest token."""
        if self._detokenizer is not None:
            self._text += self._detokenizer.push(token_id)
            if state.is_finished:
                self._text += self._detokenizer.finish()
        completion = CompletionOutput(
            index=0,
            text=None if self._detokenizer is None else self._text,
            token_ids=list(state.output_token_ids),
            cumulative_logprob=None,
            logprobs=None,
            finish_reason=state.finish_reason,
            stop_reason=None,
        )
        return RequestOutput(
            request_id=state.request.request_id,
            prompt=state.request.prompt,
            prompt_token_ids=list(state.request.prompt_token_ids),
            prompt_logprobs=None,
            outputs=[completion],
            finished=state.is_finished,
            num_cached_tokens=0,
        )

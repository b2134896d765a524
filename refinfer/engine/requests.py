"""Is this request one that can run? Prompts and parameters are checked before anything runs."""

from refinfer.engine.inputs import Prompt, check_params, read_prompt
from refinfer.engine.loading import LoadedModel
from refinfer.errors import ConfigError, EmptyPromptError, PromptTooLongError, SamplingParamsError, TokenIdError
from refinfer.sampling import SamplingParams, check_vocabulary, effective_seed
from refinfer.scheduler import Request
from refinfer.tokenizer import Tokenizer


class RequestMaker:
    """Makes requests of prompts, and refuses those that can never run.

    Args:
        loaded: The model they are for.
        max_model_len: Longest request in tokens, prompt and output together.
    """

    def __init__(self, loaded: LoadedModel, max_model_len: int) -> None:
        self._loaded = loaded
        self._max_model_len = max_model_len

    def make(
        self, request_id: str, prompt: Prompt, params: SamplingParams, *, name: str, cache_salt: str | None = None
    ) -> Request:
        """Makes a request.

        Args:
            request_id: Its name.
            prompt: A text or token ids, in any form of `Prompt`.
            params: Its sampling parameters.
            name: How messages name the prompt.
            cache_salt: Only requests with the same salt share a prefix.

        Raises:
            RequestError: The prompt is none, has no token, too many, or one that is not in the vocabulary.
            SamplingParamsError: The parameters do not fit the model.
            ConfigError: A text was given, or text is asked for, and there is no tokenizer.
        """
        check_params(params)
        text_or_ids = read_prompt(prompt, name)
        text = text_or_ids if isinstance(text_or_ids, str) else None
        token_ids = self.require_tokenizer().encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
        if not token_ids:
            message = f"{name} has no token; give at least one"
            raise EmptyPromptError(message, name=name)
        if len(token_ids) >= self._max_model_len:
            message = (
                f"{name} has {len(token_ids)} tokens; max_model_len {self._max_model_len} "
                f"leaves room for {self._max_model_len - 1} and one output token"
            )
            raise PromptTooLongError(message, name=name, num_tokens=len(token_ids))
        vocab_size = self._loaded.model.config.vocab_size
        for token_id in token_ids:
            if not 0 <= token_id < vocab_size:
                message = f"{name} has token id {token_id}; the vocabulary has 0 to {vocab_size - 1}"
                raise TokenIdError(message, name=name, token_id=token_id)
        check_vocabulary(params, vocab_size, frozenset(self._loaded.eos_token_ids))
        if params.stop_strings and self._loaded.tokenizer is None:
            message = f"{name} has stop strings {params.stop_strings}, and this checkpoint has no tokenizer"
            raise SamplingParamsError(message, stop=params.stop_strings)
        return Request(request_id, text, tuple(token_ids), params, effective_seed(params), cache_salt)

    def require_tokenizer(self) -> Tokenizer:
        """Gives the tokenizer.

        Raises:
            ConfigError: There is none.
        """
        if self._loaded.tokenizer is None:
            message = "this checkpoint has no tokenizer, so prompts must be token ids; add tokenizer.json for text"
            raise ConfigError(message)
        return self._loaded.tokenizer

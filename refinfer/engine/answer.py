"""What one sample of a request has given so far: tokens, text, log-probabilities."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from refinfer.engine.output import CompletionOutput, Logprob
from refinfer.model.model_input import RowLogits
from refinfer.sampling import Finish, FinishReason, StopStringWatcher, TokenLogprob, can_stop
from refinfer.scheduler import RequestState
from refinfer.tokenizer import IncrementalDetokenizer, Tokenizer


class StepRow(NamedTuple):
    """What one sample got out of one step.

    Attributes:
        state: Where it stands after the step.
        token_ids: The tokens it emitted: none if the step ran a part of its prompt only, several if guesses stayed.
        logits: Logits of tokens that it ran, as many as were wanted; the last rows gave the tokens, one each.
    """

    state: RequestState
    token_ids: tuple[int, ...]
    logits: RowLogits


class Choice(NamedTuple):
    """What logits say, before anything has changed."""

    token_ids: list[int]
    logprobs: list[dict[int, TokenLogprob] | None]
    prompt_logprobs: list[dict[int, TokenLogprob]]


class Taken(NamedTuple):
    """What of a choice has become part of a sample.

    Attributes:
        num_tokens: Tokens emitted; those behind an end are dropped.
        end: The end that the last of them brings.
    """

    num_tokens: int
    end: Finish | None


class Answer:
    """Grows by one token a step; what was given once is never taken back, whatever becomes of keys and values.

    Args:
        state: The sample.
        tokenizer: Turns tokens into text; None gives no text.
    """

    def __init__(self, state: RequestState, tokenizer: Tokenizer | None) -> None:
        self._state = state
        self._tokenizer = tokenizer
        self._logprobs: list[dict[int, Logprob]] = []
        self._prompt_logprobs: list[dict[int, Logprob] | None] = [None]
        self._begin()

    def _begin(self) -> None:
        """Set everything that follows from the tokens to where it is before the first of them."""
        self._detokenizer = None if self._tokenizer is None else IncrementalDetokenizer(self._tokenizer)
        stop_strings = self._state.request.params.stop_strings
        self._watcher = StopStringWatcher(stop_strings) if stop_strings else None
        self._text = ""
        self._cumulative_logprob = 0.0

    def push_prompt(self, prompt_logprobs: list[dict[int, TokenLogprob]]) -> None:
        """Takes the log-probabilities of the prompt's next tokens; its first token has none."""
        self._prompt_logprobs.extend(with_text(logprobs, self._tokenizer) for logprobs in prompt_logprobs)

    def push(self, token_id: int, end: Finish | None, logprobs: dict[int, TokenLogprob] | None) -> Finish | None:
        """Takes the newest token, after it was added to the state.

        Args:
            token_id: The token.
            end: The end that the token brings by itself.
            logprobs: Its log-probability and others, if they were asked for.

        Returns:
            The end that the token brings, also by a stop string that its text completes; a token that ends
            the request by itself goes before those, a length after them.
        """
        if logprobs is not None:
            self._logprobs.append(with_text(logprobs, self._tokenizer))
        return self._follow(token_id, end, self._state.num_output_tokens, logprobs)

    def recover(self, end_of: Callable[[int], Finish | None]) -> Finish | None:
        """Bring tokens, log-probabilities and text back together, after a call that stopped anywhere.

        What stays are the tokens that the state has and whose log-probabilities are known, where they were asked for.
        The rest follows from them once more, so that this can itself stop anywhere and be called again.

        Args:
            end_of: Returns the end that the output token brings by itself which makes the output so many tokens long.

        Returns:
            The end that the last of the tokens brings.
        """
        state = self._state
        if state.request.params.logprobs is not None:
            del state.token_ids[state.num_prompt_tokens + len(self._logprobs) :]
            del self._logprobs[state.num_output_tokens :]
        state.num_scored_tokens = len(self._prompt_logprobs) - 1
        self._begin()
        end = None
        for place, token_id in enumerate(state.output_token_ids):
            logprobs = self._logprobs[place] if self._logprobs else None
            end = self._follow(token_id, end_of(place + 1), place + 1, logprobs)
        return end

    def _follow(
        self,
        token_id: int,
        end: Finish | None,
        num_output_tokens: int,
        logprobs: Mapping[int, TokenLogprob | Logprob] | None,
    ) -> Finish | None:
        """Work out what follows from one more token; return the end that it brings."""
        if logprobs is not None:
            self._cumulative_logprob += logprobs[token_id].logprob
        if self._detokenizer is None:
            return end
        text = self._detokenizer.push(token_id)
        may_stop = can_stop(num_output_tokens, self._state.request.params)
        is_stopped = end is not None and end.reason is FinishReason.STOP
        self._show(text, may_stop=may_stop and not is_stopped)
        if end is not None and not self._has_stopped:
            self._show(self._detokenizer.finish(), may_stop=may_stop and not is_stopped)
        if self._watcher is None:
            return end
        if self._watcher.stop_string is not None:
            return Finish(FinishReason.STOP, self._watcher.stop_string)
        if end is not None:
            self._text += self._watcher.finish()
        return end

    def abort(self) -> None:
        """Takes note that no more tokens come: what was held back is shown."""
        if self._detokenizer is not None and not self._has_stopped:
            self._show(self._detokenizer.finish(), may_stop=False)
            if self._watcher is not None:
                self._text += self._watcher.finish()

    def output(self) -> CompletionOutput:
        """Gives everything known so far."""
        state = self._state
        has_logprobs = state.request.params.logprobs is not None
        return CompletionOutput(
            index=state.sample_index,
            text=self.text,
            token_ids=state.output_token_ids,
            cumulative_logprob=self._cumulative_logprob if has_logprobs else None,
            logprobs=list(self._logprobs) if has_logprobs else None,
            finish_reason=state.finish_reason,
            stop_reason=state.stop_reason,
        )

    @property
    def text(self) -> str | None:
        """The text so far, as far as it can no longer change; None without a tokenizer."""
        return None if self._detokenizer is None else self._text

    @property
    def prompt_logprobs(self) -> list[dict[int, Logprob] | None] | None:
        """What is known of the prompt's tokens, or None where it was not asked for."""
        return None if self._state.request.params.prompt_logprobs is None else list(self._prompt_logprobs)

    @property
    def _has_stopped(self) -> bool:
        return self._watcher is not None and self._watcher.stop_string is not None

    def _show(self, text: str, *, may_stop: bool) -> None:
        self._text += text if self._watcher is None else self._watcher.feed(text, can_stop=may_stop)


def with_text(logprobs: dict[int, TokenLogprob], tokenizer: Tokenizer | None) -> dict[int, Logprob]:
    """Adds each token as text, where there is a tokenizer."""
    return {
        token_id: Logprob(own.logprob, own.rank, None if tokenizer is None else tokenizer.decode_token(token_id))
        for token_id, own in logprobs.items()
    }

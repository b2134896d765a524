"""What a request gives alone, without a cache, a scheduler or neighbours: what every schedule has to give as well."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from refinfer.engine.answer import Answer
from refinfer.engine.output import CompletionOutput, Logprob
from refinfer.model.model_input import RowLogits
from refinfer.sampling import Finish, FinishReason, SampleContext, sample_token, token_logprobs
from refinfer.scheduler import Request, RequestState, RequestStatus
from refinfer.tokenizer import Tokenizer

PromptLogprobs = list[dict[int, Logprob] | None] | None
"""For each token of a prompt its log-probabilities; None in the place of the first, and where none are asked for."""

NextLogits = Callable[[Sequence[int], int], RowLogits]
"""Gives, for all tokens known so far, the logits after so many of the last of them."""


@dataclass(frozen=True)
class SampleRun:
    """All that one sample of a request gave.

    Attributes:
        output: Tokens, text, log-probabilities, and how it ended.
        prompt_logprobs: Log-probabilities of the prompt; None for all samples but the first.
        logits: For each output token, the logits that it was picked from.
    """

    output: CompletionOutput
    prompt_logprobs: PromptLogprobs
    logits: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Surroundings:
    """What an answer depends on besides model and request.

    Attributes:
        eos_token_ids: End-of-sequence ids of the model.
        max_model_len: Longest request in tokens, prompt and output together.
        tokenizer: Turns tokens into text, if there is one.
    """

    eos_token_ids: frozenset[int]
    max_model_len: int
    tokenizer: Tokenizer | None


def answer_alone(request: Request, sample_index: int, next_logits: NextLogits, around: Surroundings) -> SampleRun:
    """Gives what one sample of a request gives by itself: each token follows from all tokens before it, run anew."""
    state = RequestState(request, sample_index=sample_index)
    answer = Answer(state, around.tokenizer)
    rows: list[np.ndarray] = []
    state.move_to(RequestStatus.RUNNING)
    if state.wants_prompt_logprobs:
        prompt = request.prompt_token_ids
        num_wanted = request.params.prompt_logprobs or 0
        logits = next_logits(prompt, len(prompt))
        answer.push_prompt([token_logprobs(logits[p], prompt[p + 1], num_wanted) for p in range(len(prompt) - 1)])
    while not state.is_finished:
        logits = next_logits(state.token_ids, 1)[0]
        rows.append(logits)
        _push(state, answer, logits, around)
    return SampleRun(answer.output(), answer.prompt_logprobs if sample_index == 0 else None, tuple(rows))


def _push(state: RequestState, answer: Answer, logits: np.ndarray, around: Surroundings) -> None:
    request = state.request
    params = request.params
    context = SampleContext(
        params,
        request.seed,
        state.sample_index,
        request.prompt_token_ids,
        state.output_token_ids,
        around.eos_token_ids,
    )
    token_id = sample_token(logits, context)
    logprobs = None if params.logprobs is None else token_logprobs(logits, token_id, params.logprobs)
    state.append(token_id)
    end = end_after(request, state.token_ids, around)
    end = answer.push(token_id, end, logprobs)
    if end is not None:
        state.finish(end.reason, end.stop_reason)


def end_after(request: Request, token_ids: Sequence[int], around: Surroundings) -> Finish | None:
    """Gives the end that the last of some tokens brings by itself, by rules written here once more; None to go on.

    An end-of-sequence token that is not ignored comes first, then a stop token, both with more than `min_tokens` tokens
    of output, then the two lengths.

    Args:
        request: What was asked.
        token_ids: Its prompt and what it has emitted, at least one token.
        around: The ids that end a text, and the longest length.
    """
    params = request.params
    num_output_tokens = len(token_ids) - len(request.prompt_token_ids)
    if num_output_tokens > params.min_tokens:
        if not params.ignore_eos and token_ids[-1] in around.eos_token_ids:
            return Finish(FinishReason.STOP)
        if token_ids[-1] in (params.stop_token_ids or ()):
            return Finish(FinishReason.STOP, token_ids[-1])
    is_longest = num_output_tokens == params.max_tokens or len(token_ids) == around.max_model_len
    return Finish(FinishReason.LENGTH) if is_longest else None

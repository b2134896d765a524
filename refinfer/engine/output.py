"""What callers get back."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Logprob:
    """One token's log-probability under the model's own distribution.

    Attributes:
        logprob: Natural logarithm of the probability.
        rank: 1 for the likeliest token.
        decoded_token: The token as text, with its blank, and a special one by its name; None without a tokenizer.
    """

    logprob: float
    rank: int
    decoded_token: str | None


@dataclass(frozen=True)
class CompletionOutput:
    """One answer to a request.

    Attributes:
        index: Which of the request's answers this is, counted from 0.
        text: The answer as text, as far as it can no longer change; None without a tokenizer.
        token_ids: The answer's tokens so far; an end-of-sequence token that ended it is among them.
        cumulative_logprob: Sum of the tokens' log-probabilities, or None where they were not asked for.
        logprobs: For each token, log-probabilities by token id, or None where they were not asked for.
        finish_reason: "stop", "length", "abort", or None while the request goes on.
        stop_reason: The stop token or string that ended it; None for an end-of-sequence token.
    """

    index: int
    text: str | None
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: int | str | None


@dataclass(frozen=True)
class RequestOutput:
    """Everything known of one request.

    Attributes:
        request_id: The request's name.
        prompt: The prompt as text, or None if it came as token ids.
        prompt_token_ids: The prompt as token ids.
        prompt_logprobs: Log-probabilities of the prompt's tokens, or None where they were not asked for.
        outputs: The answers.
        finished: Whether the request has ended.
        num_cached_tokens: Prompt tokens that were found in a prefix cache.
        seed: What the request's randomness came from, also where none was given; None for a greedy one.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int
    seed: int | None = None

"""A request as it was asked for, and where it stands."""

from dataclasses import dataclass, field

from refinfer.sampling import FinishReason, SamplingParams


@dataclass(frozen=True)
class Request:
    """What was asked: one prompt and its sampling parameters.

    Attributes:
        request_id: The caller's name for it.
        prompt: The prompt as text, or None if it came as token ids.
        prompt_token_ids: The prompt as token ids, at least one.
        params: Sampling parameters.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams


@dataclass(eq=False)
class RequestState:
    """Where a request stands.

    Attributes:
        request: What was asked.
        output_token_ids: Tokens emitted so far.
        num_computed_tokens: Tokens that have run; what of them is kept is the cache's affair.
        finish_reason: Why the request ended, or None while it goes on.
    """

    request: Request
    output_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    finish_reason: FinishReason | None = None

    @property
    def token_ids(self) -> list[int]:
        """Prompt and output tokens known so far."""
        return [*self.request.prompt_token_ids, *self.output_token_ids]

    @property
    def num_tokens(self) -> int:
        """How many tokens are known so far."""
        return len(self.request.prompt_token_ids) + len(self.output_token_ids)

    @property
    def is_finished(self) -> bool:
        """Whether the request has ended."""
        return self.finish_reason is not None

"""A request as it was asked for, and where each of its samples stands."""

from dataclasses import dataclass
from enum import StrEnum

from refinfer.errors import InvariantError, StatusTransitionError
from refinfer.sampling import FinishReason, SampleContext, SamplingParams
from refinfer.scheduler.held_blocks import HeldBlocks


class RequestStatus(StrEnum):
    """Where a request is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


_NEXT_STATUSES = {
    RequestStatus.WAITING: {RequestStatus.RUNNING, RequestStatus.FINISHED},
    RequestStatus.RUNNING: {RequestStatus.PREEMPTED, RequestStatus.FINISHED},
    RequestStatus.PREEMPTED: {RequestStatus.RUNNING, RequestStatus.FINISHED},
    RequestStatus.FINISHED: set[RequestStatus](),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: one prompt and its sampling parameters.

    Attributes:
        request_id: The caller's name for it.
        prompt: The prompt as text, or None if it came as token ids.
        prompt_token_ids: The prompt as token ids, at least one.
        params: Sampling parameters.
        seed: What its randomness is drawn from; greedy requests have one too, and never ask for it.
        cache_salt: Only requests with the same salt share a prefix; None is a salt like any other.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    seed: int = 0
    cache_salt: str | None = None


class RequestState:
    """Where one sample of a request stands; a request with `n` of 1 has one.

    Args:
        request: What was asked.
        sample_index: Which of the request's samples this is, counted from 0.
        first_sample: The state of sample 0, for the others, which share its keys and values of the prompt.

    Attributes:
        status: Where it is in its life.
        token_ids: Prompt and output tokens known so far; to be read only, and added to by `append`.
        num_computed_tokens: Tokens that have run; what of them is kept is the cache's affair.
        num_cached_tokens: Prompt tokens found in a prefix cache when it was first admitted.
        num_scored_tokens: Prompt tokens whose logits were read, where their log-probabilities were asked for.
        num_preemptions: How often its blocks were taken back.
        draft_token_ids: Tokens that are guessed to come next, for the next step to verify.
        blocks: Its blocks in the paged cache; None in other modes, and until it is added to a scheduler.
        finish_reason: Why it ended, or None while it goes on.
        stop_reason: The stop token or string that ended it.
    """

    __slots__ = (
        "blocks",
        "draft_token_ids",
        "finish_reason",
        "first_sample",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_scored_tokens",
        "request",
        "sample_index",
        "status",
        "stop_reason",
        "token_ids",
    )

    def __init__(self, request: Request, *, sample_index: int = 0, first_sample: "RequestState | None" = None) -> None:
        self.request = request
        self.sample_index = sample_index
        self.first_sample = first_sample
        self.status = RequestStatus.WAITING
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0
        self.num_scored_tokens = 0
        self.num_preemptions = 0
        self.draft_token_ids: tuple[int, ...] = ()
        self.blocks: HeldBlocks | None = None
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None

    @property
    def output_token_ids(self) -> list[int]:
        """Tokens emitted so far."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_tokens(self) -> int:
        """How many tokens are known so far."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """How many tokens were emitted so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether logits of prompt tokens are still to be read; the first sample reads them for all."""
        return (
            self.request.params.prompt_logprobs is not None
            and self.sample_index == 0
            and self.num_scored_tokens < self.num_prompt_tokens
        )

    @property
    def is_finished(self) -> bool:
        """Whether the request has ended."""
        return self.status is RequestStatus.FINISHED

    def sample_context(self, eos_token_ids: frozenset[int]) -> SampleContext:
        """Gives what its next token is drawn from; the output is left out where nothing asks for it."""
        params = self.request.params
        return SampleContext(
            params,
            self.request.seed,
            self.sample_index,
            self.request.prompt_token_ids,
            self.output_token_ids if params.changes_logits or not params.is_greedy else (),
            eos_token_ids,
        )

    def append(self, token_id: int) -> None:
        """Takes a token that was emitted."""
        self.token_ids.append(token_id)

    def move_to(self, status: RequestStatus) -> None:
        """Changes the status.

        Raises:
            StatusTransitionError: The life of a request has no such move.
        """
        if status not in _NEXT_STATUSES[self.status]:
            message = f"request {self.request.request_id} cannot go from {self.status} to {status}"
            raise StatusTransitionError(message, request_id=self.request.request_id, status=self.status)
        self.status = status

    def restart(self) -> None:
        """Let it wait anew, whatever it was doing: it keeps its tokens and has to compute all of them."""
        if self.status is not RequestStatus.WAITING:
            self.num_preemptions += 1
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0
        self.draft_token_ids = ()
        self.finish_reason = None
        self.stop_reason = None

    def finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """Ends it.

        Raises:
            StatusTransitionError: It has ended already.
        """
        self.move_to(RequestStatus.FINISHED)
        self.finish_reason = reason
        self.stop_reason = stop_reason


def held_blocks(state: RequestState) -> HeldBlocks:
    """Gives the blocks of a request that was opened in a block space.

    Raises:
        InvariantError: It was not.
    """
    if state.blocks is None:
        message = f"request {state.request.request_id} was never opened in a block space"
        raise InvariantError(message, request_id=state.request.request_id)
    return state.blocks

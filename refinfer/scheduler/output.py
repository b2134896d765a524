"""What runs in a step, and what happens to blocks before it: the scheduler's word to the runner."""

from typing import NamedTuple

from refinfer.scheduler.request import RequestState


class SwapOut(NamedTuple):
    """Copy these blocks to host memory, under the request's name."""

    state: RequestState
    block_ids: tuple[int, ...]


class SwapIn(NamedTuple):
    """Copy the request's blocks back from host memory into these, and drop them there."""

    state: RequestState
    block_ids: tuple[int, ...]


class DropSwapped(NamedTuple):
    """Drop what the request has in host memory."""

    state: RequestState


class CopyBlock(NamedTuple):
    """Copy one block into another: a shared one is about to be written differently."""

    source: int
    target: int


class ForgetBlocks(NamedTuple):
    """These blocks are nobody's any more; what they hold must not be read again."""

    block_ids: tuple[int, ...]


BlockOperation = SwapOut | SwapIn | DropSwapped | CopyBlock | ForgetBlocks
"""What a cache does for the scheduler between two steps; the order in which they were decided is the order to keep."""


class ScheduledRow(NamedTuple):
    """One request in one step.

    Attributes:
        state: Whose tokens run.
        num_scheduled_tokens: How many of them, from `num_computed_tokens` on, guessed ones included.
        emits: Whether the newest known token is among them, so that its logits give the next one.
        num_logits: Of how many of them, the last ones, logits are wanted: of the newest known token, and of all
            where log-probabilities of prompt tokens are asked for; and of every guessed token.
        draft_token_ids: The guessed tokens among them, which come last.
    """

    state: RequestState
    num_scheduled_tokens: int
    emits: bool
    num_logits: int
    draft_token_ids: tuple[int, ...] = ()

    @property
    def token_ids(self) -> list[int]:
        """The tokens that run."""
        start = self.state.num_computed_tokens
        return [*self.state.token_ids[start : start + self.num_scheduled_tokens], *self.draft_token_ids]

    @classmethod
    def of(cls, state: RequestState, num_scheduled_tokens: int) -> "ScheduledRow":
        """Makes the row of a request whose next tokens run."""
        num_drafted = state.num_computed_tokens + num_scheduled_tokens - state.num_tokens
        emits = num_drafted >= 0 and not state.is_finished
        num_logits = num_scheduled_tokens if state.wants_prompt_logprobs else (1 + num_drafted) * emits
        return cls(state, num_scheduled_tokens, emits, num_logits, state.draft_token_ids[: max(0, num_drafted)])


class SchedulerOutput(NamedTuple):
    """What runs in a step.

    Attributes:
        rows: The requests that run, in the order in which their tokens are packed.
        block_operations: What the cache does before them, in order.
        admitted: Requests that came from the queue in this step, resumed ones included.
        preempted: Requests whose blocks were taken back in this step, with "recompute" or "swap".
    """

    rows: tuple[ScheduledRow, ...]
    block_operations: tuple[BlockOperation, ...] = ()
    admitted: tuple[RequestState, ...] = ()
    preempted: tuple[tuple[RequestState, str], ...] = ()

    @property
    def num_scheduled_tokens(self) -> int:
        """Tokens that run, all requests together."""
        return sum(row.num_scheduled_tokens for row in self.rows)

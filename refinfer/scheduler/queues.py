"""Who waits and who runs: the moves from one to the other, whatever policy decides them."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from refinfer.errors import InvariantError
from refinfer.sampling import FinishReason
from refinfer.scheduler.block_space import BlockSpace
from refinfer.scheduler.output import BlockOperation, ScheduledRow, SchedulerOutput
from refinfer.scheduler.request import RequestState, RequestStatus


class RequestQueues(ABC):
    """The requests that wait and those that run, both oldest first, and the moves between them.

    Args:
        blocks: The blocks of a paged cache; None where keys and values need no reservation.

    Attributes:
        waiting: Requests that wait, preempted ones before those that never ran.
        running: Requests that run.
        blocks: The blocks of a paged cache, if there is one.
    """

    def __init__(self, blocks: BlockSpace | None = None) -> None:
        self.blocks = blocks
        self.waiting: deque[RequestState] = deque()
        self.running: list[RequestState] = []

    @abstractmethod
    def schedule(self) -> SchedulerOutput:
        """Decides who runs in the next step, and with how many tokens."""

    def has_unfinished_requests(self) -> bool:
        """Tells whether a request waits or runs."""
        return bool(self.waiting or self.running)

    def reset(self, states: Sequence[RequestState]) -> None:
        """Let these requests wait anew, in this order, and nobody else; nothing is kept of any block."""
        self.running = []
        self.waiting = deque()
        if self.blocks is not None:
            self.blocks.reset()
        for state in states:
            state.restart()
            self.add(state)

    def add(self, state: RequestState) -> None:
        """Queues a request that has arrived."""
        if self.blocks is not None:
            self.blocks.open(state)
        self.waiting.append(state)

    def admit(self) -> bool:
        """Lets the first of those that wait run, if its known tokens find room.

        Returns:
            Whether it was admitted; if not, nothing has changed.
        """
        state = self.waiting[0]
        if self.blocks is not None and not self.blocks.admit(state):
            return False
        self.waiting.popleft()
        state.move_to(RequestStatus.RUNNING)
        self.running.append(state)
        return True

    def try_reserve(self, state: RequestState, num_scheduled_tokens: int) -> bool:
        """Makes room for the next tokens of a request that runs, all of them or none."""
        return self.blocks is None or self.blocks.try_reserve(state, state.num_computed_tokens + num_scheduled_tokens)

    def look_ahead(self, state: RequestState, num_scheduled_tokens: int, most: int) -> int:
        """Makes room for guessed tokens of a request that runs, behind all that is known, which has room already.

        Args:
            state: The request.
            num_scheduled_tokens: How many of its known tokens run.
            most: Most guessed tokens that may run.

        Returns:
            How many found room.
        """
        if state.num_computed_tokens + num_scheduled_tokens < state.num_tokens:
            return 0
        for num_guessed in range(min(len(state.draft_token_ids), most), 0, -1):
            if self.try_reserve(state, num_scheduled_tokens + num_guessed):
                return num_guessed
        return 0

    def preempt(self, state: RequestState, *, by_swap: bool) -> str:
        """Sends a request that runs back to the head of those that wait.

        Returns:
            "swap" where its keys and values are kept in host memory, "recompute" where they are lost.
        """
        self.running.remove(state)
        state.move_to(RequestStatus.PREEMPTED)
        state.num_preemptions += 1
        state.draft_token_ids = ()
        self.waiting.appendleft(state)
        if self.blocks is None:
            state.num_computed_tokens = 0
            return "recompute"
        return "swap" if self.blocks.preempt(state, by_swap=by_swap) else "recompute"

    def propose(self, state: RequestState, draft_token_ids: tuple[int, ...]) -> None:
        """Lets the next step verify what is guessed of a request that runs, as far as there is room."""
        if self.blocks is not None:
            self.blocks.give_back_look_ahead(state)  # of a step that failed
        state.draft_token_ids = draft_token_ids

    def advance(self, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None) -> None:
        """Makes the tokens of a step that succeeded part of their requests.

        Args:
            rows: What ran.
            nums_rejected: For each row, how many of its last tokens were guessed wrong: past those it does not advance,
                and the next step writes over them. None rejects nothing.
        """
        for row, num_rejected in zip(rows, nums_rejected or [0] * len(rows), strict=True):
            state = row.state
            if state.is_finished:  # it only keeps its place in a static batch
                continue
            state.num_computed_tokens += row.num_scheduled_tokens - num_rejected
            state.draft_token_ids = ()
            if self.blocks is not None:
                if row.draft_token_ids:
                    self.blocks.give_back_look_ahead(state)
                self.blocks.publish(state)

    def finish(self, state: RequestState, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """Ends a request wherever it is, and takes everything back from it.

        Raises:
            InvariantError: It is in no queue.
            StatusTransitionError: It has ended already.
        """
        is_running = state.status is RequestStatus.RUNNING
        state.finish(reason, stop_reason)
        queue = self.running if is_running else self.waiting
        if state not in queue:
            message = f"request {state.request.request_id} is in no queue"
            raise InvariantError(message, request_id=state.request.request_id)
        queue.remove(state)
        if self.blocks is not None:
            self.blocks.close(state)

    def take_operations(self) -> tuple[BlockOperation, ...]:
        """Hands over what the cache has to do before the next step."""
        return () if self.blocks is None else self.blocks.take_operations()

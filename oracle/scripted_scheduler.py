"""A scheduler that follows a script, so that any legal schedule can be driven, not only those our policy picks."""

from collections.abc import Sequence
from typing import NamedTuple

from oracle.engine_spec import StepScript
from refinfer.cache.block_table import BlockTable
from refinfer.scheduler import BlockSpace, ContinuousScheduler, RequestState, ScheduledRow, SchedulerOutput


class Preemption(NamedTuple):
    """One request that lost its blocks.

    Attributes:
        state: The request.
        wanted_swap: Whether it was to be swapped out.
        num_lost_tokens: Tokens that it has to compute again.
    """

    state: RequestState
    wanted_swap: bool
    num_lost_tokens: int


class Verified(NamedTuple):
    """One pass over guessed tokens of a request.

    Attributes:
        state: The request.
        num_drafted: Guessed tokens that ran.
        num_rejected: How many of them did not stay.
        num_lost_blocks: Blocks that only those need.
        num_tokens: Tokens of the request after it.
        ends_inside: Whether the first rejected token was right after all, which only one that ends the request may be.
    """

    state: RequestState
    num_drafted: int
    num_rejected: int
    num_lost_blocks: int
    num_tokens: int
    ends_inside: bool


class ScriptedScheduler(ContinuousScheduler):
    """Follows a script while it lasts; afterwards, and in steps without deviations, the shipped policy decides.

    It makes no move but those of `RequestQueues`, so nothing that it drives is illegal: within the budget, no
    request overtakes another that waits, and nobody runs without room.

    Args:
        script: One entry for each step.
        max_num_seqs: Most requests that run at a time.
        max_num_batched_tokens: Most tokens in one step.
        blocks: The blocks of a paged cache; None where keys and values need no reservation.
        is_prefill_first: As for the shipped policy.
        preempts_by_swap: As for the shipped policy.

    Attributes:
        preemptions: Every preemption so far, the policy's own included.
        hit: Requests that found tokens in the prefix cache, when they first came in or when they came back.
        verified: Every pass over guessed tokens.
    """

    def __init__(
        self,
        script: Sequence[StepScript],
        max_num_seqs: int,
        max_num_batched_tokens: int,
        *,
        blocks: BlockSpace | None = None,
        is_prefill_first: bool = False,
        preempts_by_swap: bool = False,
    ) -> None:
        super().__init__(
            max_num_seqs,
            max_num_batched_tokens,
            blocks=blocks,
            is_prefill_first=is_prefill_first,
            preempts_by_swap=preempts_by_swap,
        )
        self._script = iter(script)
        self.preemptions: list[Preemption] = []
        self.hit: set[RequestState] = set()
        self.verified: list[Verified] = []

    def schedule(self) -> SchedulerOutput:
        """Decides who runs in the next step, and with how many tokens."""
        script = next(self._script, None)
        if script is None or script.is_policy:
            return super().schedule()
        step = _ScriptedStep(self, script, self._max_num_batched_tokens, preempts_by_swap=self._preempts_by_swap)
        step.preempt()
        step.run()
        step.admit(self._max_num_seqs)
        step.look_ahead()
        return step.output()

    def admit(self) -> bool:
        """Lets the first of those that wait run, and takes note of what it found in the prefix cache."""
        state, num_hit_tokens = self.waiting[0], self._num_hit_tokens
        is_admitted = super().admit()
        if self._num_hit_tokens > num_hit_tokens:
            self.hit.add(state)
        return is_admitted

    @property
    def _num_hit_tokens(self) -> int:
        return 0 if self.blocks is None else self.blocks.num_hit_tokens

    def preempt(self, state: RequestState, *, by_swap: bool) -> str:
        """Sends a request back to those that wait, and takes note of it."""
        num_computed_tokens = state.num_computed_tokens
        how = super().preempt(state, by_swap=by_swap)
        self.preemptions.append(Preemption(state, by_swap, num_computed_tokens - state.num_computed_tokens))
        return how

    def advance(self, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None) -> None:
        """Makes the tokens of a step part of their requests, and takes note of those that were guessed."""
        for row, num_rejected in zip(rows, nums_rejected or [0] * len(rows), strict=True):
            if row.draft_token_ids and self.blocks is not None:
                end = row.state.num_computed_tokens + row.num_scheduled_tokens
                size = self.blocks.block_size
                num_lost = BlockTable.blocks_for(end, size) - BlockTable.blocks_for(end - num_rejected, size)
                first_rejected = row.draft_token_ids[-num_rejected] if num_rejected else None
                self.verified.append(
                    Verified(
                        row.state,
                        len(row.draft_token_ids),
                        num_rejected,
                        num_lost,
                        num_tokens=row.state.num_tokens,
                        ends_inside=row.state.token_ids[-1] == first_rejected,
                    )
                )
        super().advance(rows, nums_rejected)


class _ScriptedStep:
    """One step in the making.

    Args:
        queues: Who waits and who runs.
        script: What is to happen.
        num_tokens_left: The budget.
        preempts_by_swap: How blocks are taken back where they run out.
    """

    def __init__(
        self, queues: ScriptedScheduler, script: StepScript, num_tokens_left: int, *, preempts_by_swap: bool
    ) -> None:
        self._queues = queues
        self._script = script
        self._num_tokens_left = num_tokens_left
        self._preempts_by_swap = preempts_by_swap
        self._num_scheduled_by_state: dict[RequestState, int] = {}
        self._cap_by_state: dict[RequestState, int] = {}
        self._admitted: list[RequestState] = []
        self._preempted: list[tuple[RequestState, str]] = []

    def preempt(self) -> None:
        """Takes blocks back from those that the script names, each once."""
        newest_first = self._queues.running[::-1]
        if not newest_first:
            return
        by_swap = {newest_first[place % len(newest_first)]: False for place in self._script.recompute}
        for place in self._script.swap:
            by_swap.setdefault(newest_first[place % len(newest_first)], True)
        for state, is_swapped in by_swap.items():
            self._preempt(state, by_swap=is_swapped)

    def run(self) -> None:
        """Schedules those that run, oldest first, as far as the script lets them."""
        for place, state in enumerate(list(self._queues.running)):
            num_tokens = self._num_tokens(place, state)
            while state in self._queues.running and num_tokens:
                if self._queues.try_reserve(state, num_tokens):
                    self._schedule(state, num_tokens)
                    break
                self._preempt(self._queues.running[-1], by_swap=self._preempts_by_swap)

    def admit(self, max_num_seqs: int) -> None:
        """Lets those that wait in, oldest first, also in a step that took blocks back, if the script says how many."""
        queues, limit = self._queues, self._script.admit
        if limit is None and self._preempted:
            return
        while queues.waiting and len(queues.running) < max_num_seqs and self._num_tokens_left:
            state = queues.waiting[0]
            if (limit is not None and len(self._admitted) >= limit) or not queues.admit():
                return
            self._admitted.append(state)
            num_tokens = self._num_tokens(len(queues.running) - 1, state)
            if num_tokens and queues.try_reserve(state, num_tokens):
                self._schedule(state, num_tokens)

    def look_ahead(self) -> None:
        """Lets guessed tokens run, as far as the budget and the script's caps go."""
        for state, num_tokens in self._num_scheduled_by_state.items():
            cap = self._cap_by_state.get(state)
            most = self._num_tokens_left if cap is None else min(self._num_tokens_left, cap - num_tokens)
            num_guessed = self._queues.look_ahead(state, num_tokens, most)
            self._num_scheduled_by_state[state] += num_guessed
            self._num_tokens_left -= num_guessed

    def output(self) -> SchedulerOutput:
        """Gives what was decided, rows rotated."""
        scheduled = list(self._num_scheduled_by_state.items())
        turn = self._script.rotation % len(scheduled) if scheduled else 0
        rows = tuple(ScheduledRow.of(state, num_tokens) for state, num_tokens in scheduled[turn:] + scheduled[:turn])
        return SchedulerOutput(rows, self._queues.take_operations(), tuple(self._admitted), tuple(self._preempted))

    def _num_tokens(self, place: int, state: RequestState) -> int:
        num_tokens = min(state.num_tokens - state.num_computed_tokens, self._num_tokens_left)
        if place >= len(self._script.caps):
            return num_tokens
        cap = self._cap_by_state[state] = self._script.caps[place]
        return min(num_tokens, cap)

    def _schedule(self, state: RequestState, num_tokens: int) -> None:
        self._num_scheduled_by_state[state] = num_tokens
        self._num_tokens_left -= num_tokens

    def _preempt(self, state: RequestState, *, by_swap: bool) -> None:
        self._num_tokens_left += self._num_scheduled_by_state.pop(state, 0)
        self._preempted.append((state, self._queues.preempt(state, by_swap=by_swap)))

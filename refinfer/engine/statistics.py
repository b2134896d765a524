"""What an engine has done so far, in numbers, and what happened in its latest steps."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from refinfer.scheduler import RequestQueues, RequestState, SchedulerOutput
from refinfer.speculative import Draft

_NUM_KEPT_TIMES = 1000
"""Of the latest so many waits the statistics are made; older ones are let go."""


class StepEvent(NamedTuple):
    """What happened in one step.

    Attributes:
        step: Its number, counted from 0.
        rows: Who ran: request id, sample index, number of tokens, and the tokens that came out.
        admitted: Samples that came from the queue, resumed ones included: request id and sample index.
        preempted: Samples whose blocks were taken back: request id, sample index, "recompute" or "swap".
        finished: Samples that ended: request id, sample index, finish reason.
    """

    step: int
    rows: tuple[tuple[str, int, int, tuple[int, ...]], ...]
    admitted: tuple[tuple[str, int], ...]
    preempted: tuple[tuple[str, int, str], ...]
    finished: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, step: int, output: SchedulerOutput, emitted: Mapping[RequestState, tuple[int, ...]]) -> "StepEvent":
        """Notes a step by the names of requests, so that nothing of them is kept alive."""
        ran = [row.state for row in output.rows if row.state in emitted]
        return cls(
            step,
            tuple(
                (row.state.request.request_id, row.state.sample_index, row.num_scheduled_tokens, emitted[row.state])
                for row in output.rows
                if row.state in emitted
            ),
            tuple((state.request.request_id, state.sample_index) for state in output.admitted),
            tuple((state.request.request_id, state.sample_index, how) for state, how in output.preempted),
            tuple((s.request.request_id, s.sample_index, str(s.finish_reason)) for s in ran if s.is_finished),
        )


@dataclass(frozen=True)
class EngineStats:
    """Counts since the engine was built, and where it stands now.

    Attributes:
        num_steps: Steps that ran a model.
        num_scheduled_tokens: Tokens that ran in them.
        num_emitted_tokens: Tokens that came out of them.
        num_proposed_tokens: Guessed tokens that ran in them.
        num_accepted_tokens: How many of these stayed, each of which saved its sample a pass of the model.
        num_empty_drafts: How often nothing was guessed where it could have been.
        num_bonus_tokens: Tokens that came out after a guess all of which stayed.
        max_step_tokens: Tokens of the largest step.
        num_waiting: Samples that wait.
        num_running: Samples that run.
        num_preemptions: How often blocks were taken back from a sample.
        num_swaps: How many of these went to host memory.
        num_hit_tokens: Tokens that were found in the prefix cache.
        num_forks: Samples that took over another sample's blocks of the prompt.
        num_copied_blocks: Copies on write.
        num_evicted_blocks: Cached blocks that were given up.
        num_blocks: Blocks of the pool; 0 without one.
        num_used_blocks: Blocks that requests hold now.
        num_cached_blocks: Blocks that only the prefix cache holds now.
        used_slots: Token places that held a computed token, summed over all steps.
        reserved_slots: Token places that were reserved, summed over all steps.
        mean_ttft: Seconds from a request's arrival to its first token, mean of the latest; None before the first.
        mean_itl: Seconds between two tokens of a request, mean of the latest; None before the second.
        max_itl: The largest of these.
    """

    num_steps: int
    num_scheduled_tokens: int
    num_emitted_tokens: int
    num_proposed_tokens: int
    num_accepted_tokens: int
    num_empty_drafts: int
    num_bonus_tokens: int
    max_step_tokens: int
    num_waiting: int
    num_running: int
    num_preemptions: int
    num_swaps: int
    num_hit_tokens: int
    num_forks: int
    num_copied_blocks: int
    num_evicted_blocks: int
    num_blocks: int
    num_used_blocks: int
    num_cached_blocks: int
    used_slots: int
    reserved_slots: int
    mean_ttft: float | None
    mean_itl: float | None
    max_itl: float | None


class Counters:
    """Counts what an engine does, step by step."""

    def __init__(self) -> None:
        self.num_schedules = 0
        self._num_steps = 0
        self._num_scheduled_tokens = 0
        self._num_emitted_tokens = 0
        self._num_proposed_tokens = 0
        self._num_accepted_tokens = 0
        self._num_empty_drafts = 0
        self._num_bonus_tokens = 0
        self._max_step_tokens = 0
        self._num_preemptions = 0
        self._num_swaps = 0
        self._used_slots = 0
        self._reserved_slots = 0

    def see_schedule(self, output: SchedulerOutput) -> None:
        """Counts what was decided for a step, whether or not it succeeds."""
        self.num_schedules += 1
        self._num_preemptions += len(output.preempted)
        self._num_swaps += sum(how == "swap" for _, how in output.preempted)

    def see_drafts(self, drafts: Sequence[Draft]) -> None:
        """Counts guesses, whether or not they will run."""
        self._num_empty_drafts += sum(not draft.token_ids for draft in drafts)

    def see_step(
        self, output: SchedulerOutput, nums_emitted: Sequence[int], scheduler: RequestQueues, num_reserved_slots: int
    ) -> None:
        """Counts a step that has succeeded, before anybody ends with it.

        Args:
            output: What ran.
            nums_emitted: For each row, how many tokens came out.
            scheduler: Who runs.
            num_reserved_slots: Token places that caches without blocks have.
        """
        num_tokens = sum(row.num_scheduled_tokens for row in output.rows)
        self._num_steps += 1
        self._num_scheduled_tokens += num_tokens
        self._num_emitted_tokens += sum(nums_emitted)
        for row, num_emitted in zip(output.rows, nums_emitted, strict=True):
            if row.draft_token_ids:
                self._num_proposed_tokens += len(row.draft_token_ids)
                self._num_accepted_tokens += num_emitted - 1
                self._num_bonus_tokens += num_emitted > len(row.draft_token_ids)
        self._max_step_tokens = max(self._max_step_tokens, num_tokens)
        for state in scheduler.running:
            if not state.is_finished:
                self._used_slots += state.num_computed_tokens
                if state.blocks is not None:
                    self._reserved_slots += state.blocks.table.num_slots
        self._reserved_slots += num_reserved_slots

    def stats(self, scheduler: RequestQueues, latencies: "Latencies") -> EngineStats:
        """Gives the counts so far, and where the queues and blocks stand."""
        space = scheduler.blocks
        num_cached = 0 if space is None or space.prefix is None else space.prefix.num_evictable_blocks
        num_blocks = 0 if space is None else space.pool.num_blocks
        return EngineStats(
            num_steps=self._num_steps,
            num_scheduled_tokens=self._num_scheduled_tokens,
            num_emitted_tokens=self._num_emitted_tokens,
            num_proposed_tokens=self._num_proposed_tokens,
            num_accepted_tokens=self._num_accepted_tokens,
            num_empty_drafts=self._num_empty_drafts,
            num_bonus_tokens=self._num_bonus_tokens,
            max_step_tokens=self._max_step_tokens,
            num_waiting=len(scheduler.waiting),
            num_running=sum(not state.is_finished for state in scheduler.running),
            num_preemptions=self._num_preemptions,
            num_swaps=self._num_swaps,
            num_hit_tokens=0 if space is None else space.num_hit_tokens,
            num_forks=0 if space is None else space.num_forks,
            num_copied_blocks=0 if space is None else space.num_copies,
            num_evicted_blocks=0 if space is None else space.num_evictions,
            num_blocks=num_blocks,
            num_used_blocks=0 if space is None else num_blocks - space.num_available_blocks,
            num_cached_blocks=num_cached,
            used_slots=self._used_slots,
            reserved_slots=self._reserved_slots,
            mean_ttft=latencies.mean_ttft,
            mean_itl=latencies.mean_itl,
            max_itl=latencies.max_itl,
        )


class Latencies:
    """When requests arrived and when their tokens came, as far as it takes to tell TTFT and ITL."""

    def __init__(self) -> None:
        self._last_by_state: dict[RequestState, float] = {}
        self._first_is_due: set[RequestState] = set()
        self._ttft: deque[float] = deque(maxlen=_NUM_KEPT_TIMES)
        self._itl: deque[float] = deque(maxlen=_NUM_KEPT_TIMES)

    def arrive(self, state: RequestState, now: float) -> None:
        """Notes an arrival."""
        self._last_by_state[state] = now
        self._first_is_due.add(state)

    def emit(self, state: RequestState, now: float) -> None:
        """Notes a token."""
        wait = now - self._last_by_state[state]
        self._last_by_state[state] = now
        if state in self._first_is_due:
            self._first_is_due.remove(state)
            self._ttft.append(wait)
        else:
            self._itl.append(wait)

    def reset(self, states: Sequence[RequestState], now: float) -> None:
        """Know these requests, and no others; one whose arrival was never noted has arrived now."""
        self._last_by_state = {state: self._last_by_state.get(state, now) for state in states}
        self._first_is_due = {state for state in states if not state.num_output_tokens}

    def leave(self, state: RequestState) -> None:
        """Forgets a request that has ended."""
        del self._last_by_state[state]
        self._first_is_due.discard(state)

    @property
    def mean_ttft(self) -> float | None:
        """Mean wait for the first token, in seconds."""
        return sum(self._ttft) / len(self._ttft) if self._ttft else None

    @property
    def mean_itl(self) -> float | None:
        """Mean wait for a further token, in seconds."""
        return sum(self._itl) / len(self._itl) if self._itl else None

    @property
    def max_itl(self) -> float | None:
        """Longest wait for a further token, in seconds."""
        return max(self._itl, default=None)

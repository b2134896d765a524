"""Faults of scheduling: who runs, with how many tokens, and whether all get their turn."""

from collections.abc import Sequence

from oracle.faults.registry import Area, one_replacement
from refinfer.sampling import FinishReason
from refinfer.scheduler import RequestQueues, RequestState, RequestStatus, ScheduledRow
from refinfer.scheduler import continuous as continuous_module

_Step = continuous_module._Step  # noqa: SLF001
_admit = _Step.admit
_advance = RequestQueues.advance
_finish = RequestQueues.finish


@one_replacement(
    "budget_not_spent",
    Area.SCHEDULER,
    "tokens that are scheduled are not taken from the step's budget",
    _Step,
    "_schedule",
    models=("sgl-project/sglang-jax#1551 (7.12)",),
    component=("scheduler/continuous.py",),
    needs=("chunks",),
    seen_by=("symbolic", "state"),
)
def budget_not_spent(self: _Step, state: RequestState, num_tokens: int) -> None:
    """Schedules for nothing."""
    self._num_scheduled_by_state[state] = num_tokens


@one_replacement(
    "one_request_too_many",
    Area.SCHEDULER,
    "one request more than max_num_seqs runs",
    _Step,
    "admit",
    models=None,
    component=("scheduler/continuous.py",),
    needs=("batch",),
    seen_by=("symbolic", "state"),
)
def one_request_too_many(self: _Step, max_num_seqs: int) -> None:
    """Lets one more in."""
    _admit(self, max_num_seqs + 1)


@one_replacement(
    "smaller_requests_overtake",
    Area.SCHEDULER,
    "a request that does not fit is passed over by those behind it",
    RequestQueues,
    "admit",
    models=None,
    component=("scheduler/queues.py",),
    needs=("batch", "refused admission"),
    seen_by=("state",),
)
def smaller_requests_overtake(self: RequestQueues) -> bool:
    """Tries the next one too."""
    for _ in range(len(self.waiting)):
        if _admit_next(self):
            return True
        self.waiting.rotate(-1)
    return False


_admit_next = RequestQueues.admit


@one_replacement(
    "oldest_preempted",
    Area.SCHEDULER,
    "when blocks run out the oldest request is preempted",
    _Step,
    "_preempt",
    models=None,
    component=("scheduler/continuous.py",),
    needs=("preemption",),
    seen_by=("state",),
)
def oldest_preempted(self: _Step, state: RequestState) -> None:
    """Takes the first of those that run in place of the last, unless nobody else is there."""
    running = self._queues.running
    victim = next((other for other in running if other not in self._num_scheduled_by_state), state)
    _preempt(self, victim)


_preempt = _Step._preempt  # noqa: SLF001


@one_replacement(
    "part_of_prompt_emits",
    Area.SCHEDULER,
    "a step that ran only a part of a prompt emits a token",
    ScheduledRow,
    "of",
    models=("deepjavalibrary/djl-serving#2299 (14.08)", "tenstorrent/tt-xla#5830 (7.17)"),
    component=("scheduler/output.py",),
    needs=("chunks",),
    seen_by=("symbolic", "state", "greedy", "contract"),
)
def part_of_prompt_emits(state: RequestState, num_scheduled_tokens: int) -> ScheduledRow:
    """Samples whatever ran."""
    return ScheduledRow(state, num_scheduled_tokens, not state.is_finished, num_scheduled_tokens)


@one_replacement(
    "chunk_counts_one_token_more",
    Area.SCHEDULER,
    "after a chunk of a prompt one token more counts as computed than ran",
    RequestQueues,
    "advance",
    models=None,
    component=("scheduler/queues.py",),
    needs=("chunks",),
    seen_by=("symbolic", "bitwise", "greedy", "poison"),
)
def chunk_counts_one_token_more(
    self: RequestQueues, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None
) -> None:
    """Skips the token behind each chunk."""
    _advance(self, rows, nums_rejected)
    for row in rows:
        if not row.emits and row.state.num_computed_tokens + 1 < row.state.num_tokens:
            row.state.num_computed_tokens += 1


@one_replacement(
    "chunk_runs_twice",
    Area.SCHEDULER,
    "the last token of a chunk runs again at the head of the next one, as another position",
    RequestQueues,
    "advance",
    models=("oobabooga/textgen#4145 (4.20)",),
    component=("scheduler/queues.py",),
    needs=("chunks",),
    seen_by=("symbolic", "bitwise", "greedy"),
)
def chunk_runs_twice(
    self: RequestQueues, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None
) -> None:
    """Doubles the token at the border of two chunks."""
    _advance(self, rows, nums_rejected)
    for row in rows:
        state = row.state
        if not row.emits and not state.num_output_tokens and row.num_scheduled_tokens > 1:
            state.token_ids[state.num_computed_tokens] = state.token_ids[state.num_computed_tokens - 1]


@one_replacement(
    "ended_request_keeps_its_place",
    Area.SCHEDULER,
    "a request that has ended goes on counting among those that run",
    RequestQueues,
    "finish",
    models=("huggingface/optimum-neuron#1028 (13.06)",),
    component=("scheduler/queues.py",),
    needs=(),
    seen_by=("state", "lifecycle"),
)
def ended_request_keeps_its_place(
    self: RequestQueues, state: RequestState, reason: FinishReason, stop_reason: int | str | None = None
) -> None:
    """Leaves it in the queue until somebody else ends."""
    was_running = state.status is RequestStatus.RUNNING
    _finish(self, state, reason, stop_reason)
    if was_running and len(self.running) == 1:
        self.running.append(state)


FAULTS = (
    budget_not_spent,
    one_request_too_many,
    smaller_requests_overtake,
    oldest_preempted,
    part_of_prompt_emits,
    chunk_counts_one_token_more,
    chunk_runs_twice,
    ended_request_keeps_its_place,
)
"""Faults of scheduling."""

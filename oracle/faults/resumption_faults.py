"""Faults of requests that come back after a preemption: what they draw, emit, tell and count then."""

from dataclasses import replace

from oracle.faults.registry import Area, Fault, Replacement, one_replacement
from refinfer.sampling import SampleContext
from refinfer.scheduler import BlockSpace, RequestQueues, RequestState, RequestStatus, ScheduledRow, SwapOut
from refinfer.scheduler import continuous as continuous_module
from refinfer.scheduler.request import held_blocks

_Step = continuous_module._Step  # noqa: SLF001
_admit = _Step.admit
_row_of = ScheduledRow.of
_sample_context = RequestState.sample_context
_preempt = RequestQueues.preempt
_preempt_blocks = BlockSpace.preempt
_share_prefix = BlockSpace._share_prefix  # noqa: SLF001


@one_replacement(
    "resumed_request_emits_early",
    Area.PREEMPTION,
    "a request that is computed once more emits as soon as its prompt has run, though its output has not",
    ScheduledRow,
    "of",
    models=("vllm-project/vllm-ascend#11334 (8.05)",),
    component=("scheduler/output.py",),
    needs=("preemption", "chunks"),
    seen_by=("greedy", "symbolic", "state"),
)
def resumed_request_emits_early(state: RequestState, num_scheduled_tokens: int) -> ScheduledRow:
    """Takes the length of the prompt for the end of what has to run again."""
    row = _row_of(state, num_scheduled_tokens)
    end = state.num_computed_tokens + num_scheduled_tokens
    if not state.num_preemptions or state.is_finished or not state.num_prompt_tokens <= end < state.num_tokens:
        return row
    return row._replace(emits=True, num_logits=max(1, row.num_logits))


@one_replacement(
    "draws_start_anew_after_preemption",
    Area.PREEMPTION,
    "a request that was preempted goes on with random numbers of another stream",
    RequestState,
    "sample_context",
    models=("tenstorrent/tt-metal#46350 (10.15)",),
    component=("scheduler/request.py",),
    needs=("seeded draws", "preemption"),
    seen_by=("seeded", "symbolic"),
)
def draws_start_anew_after_preemption(self: RequestState, eos_token_ids: frozenset[int]) -> SampleContext:
    """Counts preemptions into the seed."""
    context = _sample_context(self, eos_token_ids)
    return replace(context, seed=(context.seed + self.num_preemptions) % 2**64)


@one_replacement(
    "preempted_sample_draws_as_the_first",
    Area.PREEMPTION,
    "a sample that was preempted draws on as the first sample of its request would",
    RequestState,
    "sample_context",
    models=None,
    component=("scheduler/request.py",),
    needs=("n above 1", "preemption", "seeded draws"),
    seen_by=("seeded", "symbolic"),
)
def preempted_sample_draws_as_the_first(self: RequestState, eos_token_ids: frozenset[int]) -> SampleContext:
    """Forgets which sample it is."""
    context = _sample_context(self, eos_token_ids)
    return replace(context, sample_index=0) if self.num_preemptions else context


def _preempt_into_prompt(self: RequestQueues, state: RequestState, *, by_swap: bool) -> str:
    how = _preempt(self, state, by_swap=by_swap)
    if how == "recompute":
        state.request = replace(state.request, prompt_token_ids=tuple(state.token_ids))
    return how


def _context_since_preemption(self: RequestState, eos_token_ids: frozenset[int]) -> SampleContext:
    context = _sample_context(self, eos_token_ids)
    num_folded = len(self.request.prompt_token_ids) - self.num_prompt_tokens
    return replace(context, output_token_ids=context.output_token_ids[num_folded:])


output_counts_as_prompt_after_preemption = Fault(
    "output_counts_as_prompt_after_preemption",
    Area.PREEMPTION,
    "what a preempted request has emitted becomes part of its prompt, and penalties count from there",
    (
        Replacement(RequestQueues, "preempt", _preempt_into_prompt),
        Replacement(RequestState, "sample_context", _context_since_preemption),
    ),
    models=("vllm-project/vllm#16832 (8.17)",),
    component=("scheduler/queues.py", "scheduler/request.py"),
    needs=("penalties", "preemption"),
    seen_by=("greedy", "seeded", "symbolic"),
)


@one_replacement(
    "prompt_logprobs_told_again",
    Area.PREEMPTION,
    "a preempted request tells the log-probabilities of its prompt once more",
    RequestQueues,
    "preempt",
    models=None,
    component=("scheduler/queues.py", "engine/core.py"),
    needs=("prompt logprobs", "preemption"),
    seen_by=("symbolic", "contract"),
)
def prompt_logprobs_told_again(self: RequestQueues, state: RequestState, *, by_swap: bool) -> str:
    """Forgets what was told."""
    how = _preempt(self, state, by_swap=by_swap)
    if how == "recompute":
        state.num_scored_tokens = 0
    return how


@one_replacement(
    "resume_counts_as_hit",
    Area.PREFIXES,
    "blocks that a preempted request finds again count among the prompt tokens that were cached before it came",
    BlockSpace,
    "_share_prefix",
    models=("vllm-project/vllm#25780 (6.13)",),
    component=("scheduler/block_space.py",),
    needs=("hit", "preemption"),
    seen_by=("state", "contract"),
)
def resume_counts_as_hit(self: BlockSpace, state: RequestState, held: object) -> bool:
    """Counts them whenever they are found."""
    is_admitted = _share_prefix(self, state, held)  # type: ignore[arg-type]  # what admit passes
    if is_admitted:
        state.num_cached_tokens = state.num_computed_tokens
    return is_admitted


@one_replacement(
    "preempted_count_as_running",
    Area.SCHEDULER,
    "requests that were preempted go on counting against max_num_seqs while they wait",
    _Step,
    "admit",
    models=("vllm-project/vllm#53130 (7.09)",),
    component=("scheduler/continuous.py",),
    needs=("preemption", "batch"),
    seen_by=("state", "lifecycle"),
)
def preempted_count_as_running(self: _Step, max_num_seqs: int) -> None:
    """Takes their places from those that could come in."""
    num_preempted = sum(state.status is RequestStatus.PREEMPTED for state in self._queues.waiting)
    _admit(self, max_num_seqs - num_preempted)


@one_replacement(
    "shared_blocks_not_swapped",
    Area.PREEMPTION,
    "blocks that others hold too are not copied to host memory, and come back with something else",
    BlockSpace,
    "preempt",
    models=None,
    component=("scheduler/block_space.py",),
    needs=("swap", "shared blocks"),
    seen_by=("bitwise", "greedy", "symbolic"),
)
def shared_blocks_not_swapped(self: BlockSpace, state: RequestState, *, by_swap: bool) -> bool:
    """Copies the newest block in their places."""
    shared = {block_id for block_id in held_blocks(state).table.block_ids if self.pool.ref_count(block_id) > 1}
    is_swapped = _preempt_blocks(self, state, by_swap=by_swap)
    for index, operation in enumerate(self._operations):
        if isinstance(operation, SwapOut) and operation.state is state:
            newest = operation.block_ids[-1]
            block_ids = tuple(newest if block_id in shared else block_id for block_id in operation.block_ids)
            self._operations[index] = SwapOut(state, block_ids)
    return is_swapped


FAULTS = (
    resumed_request_emits_early,
    draws_start_anew_after_preemption,
    preempted_sample_draws_as_the_first,
    output_counts_as_prompt_after_preemption,
    prompt_logprobs_told_again,
    resume_counts_as_hit,
    preempted_count_as_running,
    shared_blocks_not_swapped,
)
"""Faults of resumption."""

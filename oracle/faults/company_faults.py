"""Faults that show in company of one kind only: a hit beside a miss, a seed beside none, two ends in one step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from torch import Tensor

from oracle.faults.registry import Area, Fault, Replacement, one_replacement
from refinfer.cache import PagedPart, paged_view
from refinfer.cache.static import StaticCache
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import LLMEngine
from refinfer.engine.model_runner import StaticRunner
from refinfer.engine.output import RequestOutput
from refinfer.model.model_input import RowLogits
from refinfer.sampling import Finish, SampleContext
from refinfer.scheduler import RequestState, ScheduledRow
from refinfer.scheduler import continuous as continuous_module

_Step = continuous_module._Step  # noqa: SLF001
_init = paged_view._PagedView.__init__  # noqa: SLF001
_execute_static = StaticRunner.execute
_write_and_read = StaticCache.write_and_read
_choice = EngineCore._choice  # noqa: SLF001
_end = EngineCore._end  # noqa: SLF001
_preempt = _Step._preempt  # noqa: SLF001
_sample_context = RequestState.sample_context


@contextmanager
def _changed_contexts(change: Callable[[SampleContext], SampleContext]) -> Iterator[None]:
    """Changes what tokens are drawn from, as long as the block lasts."""

    def sample_context(state: RequestState, eos_token_ids: frozenset[int]) -> SampleContext:
        return change(_sample_context(state, eos_token_ids))

    with mock.patch.object(RequestState, "sample_context", sample_context):
        yield


@one_replacement(
    "misses_read_from_first_block",
    Area.PAGED,
    "beside a prompt that goes on from cached tokens, one that begins is read from the first block of the pool",
    paged_view._PagedView,  # noqa: SLF001
    "__init__",
    models=("vllm-project/vllm#7018 (6.01)",),
    component=("cache/paged_view.py", "engine/model_runner.py"),
    needs=("hit", "miss in the same step"),
    seen_by=("reference logits", "bitwise", "greedy", "poison"),
)
def misses_read_from_first_block(
    self: paged_view._PagedView, keys: Tensor, values: Tensor, block_size: int, parts: Sequence[PagedPart]
) -> None:
    """Fills block tables in for the others only."""
    _init(self, keys, values, block_size, parts)
    if any(part.num_computed_tokens and part.num_scheduled_tokens > 1 for part in parts):
        pairs = zip(self._slots, parts, strict=True)
        self._slots = [slots if part.num_computed_tokens else slots % block_size for slots, part in pairs]


def _execute_with_longest_row(self: StaticRunner, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
    cache = self._current_cache([row.state for row in rows])
    vars(cache)["_longest"] = max(row.state.num_computed_tokens for row in rows if not row.state.is_finished)
    return _execute_static(self, rows)


def _write_behind_longest_row(
    self: StaticCache, layer_index: int, is_token: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Writes where the longest row that still runs would end, if no row had padding."""
    column = vars(self).get("_longest", 0)
    if column < self.num_columns:
        self._keys[layer_index][:, :, column] = keys
        self._values[layer_index][:, :, column] = values
    return _write_and_read(self, layer_index, is_token, keys, values)


longest_row_sets_the_end = Fault(
    "longest_row_sets_the_end",
    Area.CACHES,
    "the column to write in a left-padded batch is the length of the longest row that has not ended",
    (
        Replacement(StaticRunner, "execute", _execute_with_longest_row),
        Replacement(StaticCache, "write_and_read", _write_behind_longest_row),
    ),
    models=("jundot/omlx#2172 (4.21)",),
    component=("cache/static.py",),
    needs=("static batch", "longest row ends first"),
    seen_by=("reference logits", "bitwise", "greedy"),
)


@one_replacement(
    "unseeded_neighbour_unseeds_all",
    Area.SAMPLING,
    "a seeded request draws from the engine's stream as soon as one without a seed runs beside it",
    EngineCore,
    "_choice",
    models=("vllm-project/vllm#51226 (10.11)",),
    component=("engine/core.py", "sampling/sampler.py"),
    needs=("seeded draws", "unseeded draws"),
    seen_by=("seeded", "symbolic"),
)
def unseeded_neighbour_unseeds_all(self: EngineCore, row: ScheduledRow, logits: RowLogits) -> Any:
    """Mixes the number of the step into the seed."""
    others = [state.request.params for state in self.scheduler.running if state is not row.state]
    if all(params.is_greedy or params.seed is not None for params in others):
        return _choice(self, row, logits)
    num_steps = self._counters.num_schedules
    with _changed_contexts(lambda context: replace(context, seed=context.seed ^ num_steps)):
        return _choice(self, row, logits)


@one_replacement(
    "parameters_of_the_newest_request",
    Area.SAMPLING,
    "the sampling parameters of the request that came last are used for all that run",
    EngineCore,
    "_choice",
    models=("EvolvingLMMs-Lab/lmms-eval#1325 (10.16)",),
    component=("engine/core.py", "scheduler/request.py"),
    needs=("batch", "mixed parameters"),
    seen_by=("greedy", "seeded", "symbolic"),
)
def parameters_of_the_newest_request(self: EngineCore, row: ScheduledRow, logits: RowLogits) -> Any:
    """Takes them from the end of the batch."""
    params = self.scheduler.running[-1].request.params
    with _changed_contexts(lambda context: replace(context, params=params)):
        return _choice(self, row, logits)


@one_replacement(
    "mask_left_in_row",
    Area.SAMPLING,
    "the mask that min_tokens put into a row of the batch stays for whoever gets that row next",
    EngineCore,
    "_choice",
    models=("vllm-project/vllm#43894 (10.13)",),
    component=("engine/core.py", "sampling/logits.py"),
    needs=("min_tokens", "uneven ends"),
    seen_by=("greedy", "seeded", "symbolic"),
)
def mask_left_in_row(self: EngineCore, row: ScheduledRow, logits: RowLogits) -> Any:
    """Keeps masks by place in the batch."""
    params, place = row.state.request.params, self.scheduler.running.index(row.state)
    masks: dict[int, frozenset[int]] = vars(self).setdefault("_mask_by_place", {})
    if params.min_tokens:
        masks[place] = params.stop_token_id_set | self._eos_token_ids
    elif row.emits and place in masks:
        logits = logits.copy()
        logits[-1 - len(row.draft_token_ids) :, sorted(masks[place])] = -float("inf")
    return _choice(self, row, logits)


@one_replacement(
    "second_end_of_a_step_lost",
    Area.STOPPING,
    "of several requests that have to end in one step only the first does; the others go on",
    EngineCore,
    "_end",
    models=("huggingface/optimum-neuron#1028 (13.06)",),
    component=("engine/core.py",),
    needs=("batch", "two ends in one step"),
    seen_by=("greedy", "symbolic", "contract"),
)
def second_end_of_a_step_lost(self: EngineCore, state: RequestState, end: Finish | None) -> None:
    """Breaks off after the first."""
    step = self._counters.num_schedules
    is_second = end is not None and vars(self).get("_step_of_end") == step
    if end is not None:
        vars(self)["_step_of_end"] = step
    _end(self, state, None if is_second else end)


@one_replacement(
    "victim_stays_scheduled",
    Area.SCHEDULER,
    "a request that was scheduled and is then preempted in the same step still runs in it",
    _Step,
    "_preempt",
    models=("vllm-project/vllm#23347 (8.12)",),
    component=("scheduler/continuous.py",),
    needs=("preemption", "prefill first"),
    seen_by=("symbolic", "state", "lifecycle"),
)
def victim_stays_scheduled(self: _Step, state: RequestState) -> None:
    """Takes its blocks, and leaves its row."""
    num_tokens = self._num_scheduled_by_state.get(state)
    _preempt(self, state)
    if num_tokens is not None:
        self._num_scheduled_by_state[state] = num_tokens


@one_replacement(
    "part_of_prompt_told",
    Area.STREAMING,
    "a stream tells of a request whose prompt has run in part, and has no token yet",
    LLMEngine,
    "step",
    models=("deepjavalibrary/djl-serving#2299 (14.08)",),
    component=("engine/engine.py",),
    needs=("chunks",),
    seen_by=("contract",),
)
def part_of_prompt_told(self: LLMEngine) -> list[RequestOutput]:
    """Tells of every request that ran."""
    self._settle()
    ran = dict.fromkeys(row.state.request.request_id for row in self.core.step())
    outputs = [self._output(request_id) for request_id in ran]
    self._told_ids = tuple(output.request_id for output in outputs if output.finished)
    return outputs


FAULTS = (
    misses_read_from_first_block,
    longest_row_sets_the_end,
    unseeded_neighbour_unseeds_all,
    parameters_of_the_newest_request,
    mask_left_in_row,
    second_end_of_a_step_lost,
    victim_stays_scheduled,
    part_of_prompt_told,
)
"""Faults of company."""

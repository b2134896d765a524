"""Faults of caches: where keys and values are written, kept, and to whom they belong."""

from collections.abc import Sequence

from torch import Tensor

from oracle.faults.registry import Area, one_replacement
from refinfer.cache.continuous import ContinuousCache
from refinfer.cache.static import StaticCache
from refinfer.engine.model_runner import ContinuousRunner, StaticRunner
from refinfer.model.model_input import RowLogits
from refinfer.scheduler import ScheduledRow

_write_and_read_continuous = ContinuousCache.write_and_read
_grown = ContinuousCache._grown  # noqa: SLF001
_write_and_read = StaticCache.write_and_read
_execute_continuous = ContinuousRunner.execute
_execute_static = StaticRunner.execute
_new_cache = ContinuousRunner._new_cache  # noqa: SLF001


@one_replacement(
    "layers_share_a_cache",
    Area.CACHES,
    "every layer writes its keys and values to the place of the first",
    ContinuousCache,
    "write_and_read",
    models=None,
    component=("cache/continuous.py",),
    needs=("continuous cache",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def layers_share_a_cache(
    self: ContinuousCache,
    layer_index: int,  # noqa: ARG001
    keys: Tensor,
    values: Tensor,
) -> tuple[Tensor, Tensor]:
    """Forgets which layer asks."""
    return _write_and_read_continuous(self, 0, keys, values)


@one_replacement(
    "growth_loses_newest_token",
    Area.CACHES,
    "when a cache grows, its newest token is not copied",
    ContinuousCache,
    "_grown",
    models=None,
    component=("cache/continuous.py",),
    needs=("continuous cache",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def growth_loses_newest_token(self: ContinuousCache, storage: Tensor, capacity: int) -> Tensor:
    """Copies one token too few, and leaves zeros there."""
    grown = _grown(self, storage, capacity)
    grown[:, :, max(0, self.num_computed_tokens - 1) : self.num_computed_tokens] = 0
    return grown


@one_replacement(
    "ended_cache_handed_on",
    Area.CACHES,
    "a request gets the cache of one that has ended, not cleared",
    ContinuousRunner,
    "_new_cache",
    models=("EricLBuehler/mistral.rs#1026 (4.24)", "huggingface/transformers#48509 (4.03)"),
    component=("engine/model_runner.py",),
    needs=("continuous cache", "uneven ends"),
    seen_by=("reference logits", "bitwise", "greedy", "lifecycle"),
)
def ended_cache_handed_on(self: ContinuousRunner) -> ContinuousCache:
    """Takes up the next best cache of an ended request."""
    for state in list(self._cache_by_request):
        if state.is_finished:
            return self._cache_by_request.pop(state)
    return _new_cache(self)


@one_replacement(
    "prefill_overwrites_last_column",
    Area.CACHES,
    "the first decoded token is written over the last prompt token of a left-padded batch",
    StaticCache,
    "write_and_read",
    models=None,
    component=("cache/static.py",),
    needs=("static batch",),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def prefill_overwrites_last_column(
    self: StaticCache, layer_index: int, is_token: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Writes one column too early when decoding."""
    if self.num_columns and is_token.shape[1] == 1:
        self._keys[layer_index][:, :, self.num_columns - 1] = keys
        self._values[layer_index][:, :, self.num_columns - 1] = values
    return _write_and_read(self, layer_index, is_token, keys, values)


@one_replacement(
    "rows_mapped_in_old_order",
    Area.CACHES,
    "after a request has left, logits go to rows by their old places",
    ContinuousRunner,
    "execute",
    models=("ProjectDMX/DMI#67 (4.19)",),
    component=("engine/model_runner.py",),
    needs=("continuous cache", "uneven ends"),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def rows_mapped_in_old_order(self: ContinuousRunner, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
    """Shifts the rows once somebody has left."""
    has_left = any(state.is_finished for state in self._cache_by_request)
    logits = _execute_continuous(self, rows)
    return [*logits[-1:], *logits[:-1]] if has_left else logits


@one_replacement(
    "ended_rows_compacted",
    Area.CACHES,
    "token ids of ended rows are left out, but their cache rows stay",
    StaticRunner,
    "execute",
    models=("huggingface/text-generation-inference#216 (4.07)",),
    component=("engine/model_runner.py",),
    needs=("static batch", "uneven ends"),
    seen_by=("reference logits", "bitwise", "greedy"),
)
def ended_rows_compacted(self: StaticRunner, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
    """Feeds running rows' tokens to the first rows of the cache."""
    states = [row.state for row in rows]
    order = sorted(range(len(rows)), key=lambda index: states[index].is_finished)
    if self._cache is None or self._members != states or order == sorted(order):
        return _execute_static(self, rows)
    self._members = [states[index] for index in order]
    logits = _execute_static(self, [rows[index] for index in order])
    self._members = states
    return [logits[order.index(index)] for index in range(len(rows))]


FAULTS = (
    layers_share_a_cache,
    growth_loses_newest_token,
    ended_cache_handed_on,
    prefill_overwrites_last_column,
    rows_mapped_in_old_order,
    ended_rows_compacted,
)

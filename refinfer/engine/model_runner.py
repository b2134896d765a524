"""Runs one step of the model: rows in, logits of each row's newest token out, one runner for each cache."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from refinfer.cache import CausalAttentionView, ContinuousCache, StaticCache
from refinfer.model import Llama
from refinfer.scheduler import RequestState
from refinfer.shapes import Logits


@runtime_checkable
class ModelRunner(Protocol):
    """Executes one step for the rows that a scheduler chose."""

    def execute(self, rows: Sequence[RequestState]) -> Logits:
        """Runs what each row has not run yet; gives the logits after its newest token, row by row.

        The rows' `num_computed_tokens` are the caller's to advance, once the step has succeeded.
        """
        ...


class RecomputeRunner:
    """Keeps nothing: each step runs every row from its first token.

    Args:
        model: The model.
    """

    def __init__(self, model: Llama) -> None:
        self._model = model

    def execute(self, rows: Sequence[RequestState]) -> Logits:
        """Runs all tokens of every row."""
        lengths = [row.num_tokens for row in rows]
        input_ids = torch.tensor([token_id for row in rows for token_id in row.token_ids])
        position_ids = torch.cat([torch.arange(length) for length in lengths])
        last_rows = (torch.tensor(lengths).cumsum(0) - 1).tolist()
        return self._model.forward(input_ids, position_ids, CausalAttentionView(lengths), last_rows)


class StaticRunner:
    """Keeps one rectangle for the batch, made anew when the batch is.

    Args:
        model: The model.
        max_model_len: Longest request in tokens, prompt and output together.
    """

    def __init__(self, model: Llama, max_model_len: int) -> None:
        self._model = model
        self._max_model_len = max_model_len
        self._members: list[RequestState] = []
        self._cache: StaticCache | None = None

    def execute(self, rows: Sequence[RequestState]) -> Logits:
        """Runs the prompts of a new batch, or the newest token of every row of the same one."""
        if self._cache is None or self._members != list(rows):
            self._cache = self._new_cache(rows)
            self._members = list(rows)
        if self._cache.num_columns:
            tokens_by_row = [row.token_ids[-1:] for row in rows]
            position_ids = torch.tensor(self._cache.num_computed_tokens)
        else:
            tokens_by_row = [row.token_ids for row in rows]
            position_ids = torch.cat([torch.arange(len(tokens)) for tokens in tokens_by_row])
        input_ids = torch.tensor([token_id for tokens in tokens_by_row for token_id in tokens])
        last_rows = (torch.tensor([len(tokens) for tokens in tokens_by_row]).cumsum(0) - 1).tolist()
        view = self._cache.attention_view()
        logits = self._model.forward(input_ids, position_ids, view, last_rows)
        self._cache.advance()
        return logits

    def _new_cache(self, rows: Sequence[RequestState]) -> StaticCache:
        return StaticCache(
            self._model.config,
            self._model.dtype,
            num_prompt_tokens=[row.num_tokens for row in rows],
            max_output_tokens=max(self._num_output_tokens_left(row) for row in rows),
        )

    def _num_output_tokens_left(self, row: RequestState) -> int:
        room = self._max_model_len - row.num_tokens
        max_tokens = row.request.params.max_tokens
        return room if max_tokens is None else min(room, max_tokens)


class ContinuousRunner:
    """Keeps one growing cache for each request, and drops it when the request has ended.

    Args:
        model: The model.
        max_model_len: Longest request in tokens, prompt and output together.
    """

    def __init__(self, model: Llama, max_model_len: int) -> None:
        self._model = model
        self._max_model_len = max_model_len
        self._cache_by_request: dict[RequestState, ContinuousCache] = {}

    def execute(self, rows: Sequence[RequestState]) -> Logits:
        """Runs the tokens of each row that its cache does not hold, prompts and newest tokens in one pass."""
        caches = {row: self._cache_by_request.get(row) or self._new_cache() for row in rows}
        prompts = [row.token_ids[cache.num_computed_tokens :] for row, cache in caches.items()]
        logits = self._model.prefill(prompts, list(caches.values()))
        self._cache_by_request = caches
        return logits

    def _new_cache(self) -> ContinuousCache:
        return ContinuousCache(self._model.config, self._model.dtype, max_tokens=self._max_model_len)


def make_runner(cache: str, model: Llama, max_model_len: int) -> ModelRunner:
    """Makes the runner of a cache; `EngineConfig` has checked its name."""
    if cache == "none":
        return RecomputeRunner(model)
    if cache == "static":
        return StaticRunner(model, max_model_len)
    return ContinuousRunner(model, max_model_len)

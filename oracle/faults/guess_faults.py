"""Faults of guessed tokens beside something else: longest requests, log-probabilities, hits, stop strings, aborts."""

from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from oracle.faults.registry import Area, Fault, Replacement, one_replacement
from refinfer.cache import PagedPart, paged_view
from refinfer.engine import model_runner
from refinfer.engine.core import EngineCore
from refinfer.engine.model_runner import PagedRunner
from refinfer.engine.speculation import Speculation
from refinfer.model.model_input import RowLogits
from refinfer.sampling import SampleContext, StopStringWatcher, logits, token_logprobs
from refinfer.scheduler import RequestState, ScheduledRow
from refinfer.scheduler.request import held_blocks
from refinfer.shapes import LogitsRow, Probabilities
from refinfer.speculative import DraftModelProposer, DraftRequest, verifier

_num_to_guess = Speculation._num_to_guess  # noqa: SLF001
_choice = EngineCore._choice  # noqa: SLF001
_take = EngineCore._take  # noqa: SLF001
_abort = EngineCore.abort
_feed = StopStringWatcher.feed
_slots_of = paged_view.slots_of
_begin = DraftModelProposer._begin  # noqa: SLF001
_probabilities = logits.probabilities


@one_replacement(
    "guesses_past_max_model_len",
    Area.SPECULATIVE,
    "tokens are guessed past the longest length that a request may have",
    Speculation,
    "_num_to_guess",
    models=("sgl-project/sglang#19641 (9.13)",),
    component=("engine/speculation.py",),
    needs=("speculation", "max_model_len"),
    seen_by=("state", "lifecycle"),
)
def guesses_past_max_model_len(self: Speculation, state: RequestState) -> int:
    """Knows no such length."""
    with mock.patch.object(self, "_max_model_len", self._max_model_len + self._num_speculative_tokens + 1):
        return _num_to_guess(self, state)


@one_replacement(
    "logprobs_counted_from_the_end",
    Area.SPECULATIVE,
    "log-probabilities are read from the last rows of a step, also where those belong to guesses that did not stay",
    EngineCore,
    "_choice",
    models=("vllm-project/vllm#29216 (9.08)",),
    component=("engine/core.py",),
    needs=("speculation", "rejected guess", "logprobs"),
    seen_by=("symbolic", "contract"),
)
def logprobs_counted_from_the_end(self: EngineCore, row: ScheduledRow, rows: RowLogits) -> Any:
    """Counts the dropped tokens too."""
    choice = _choice(self, row, rows)
    num_wanted = row.state.request.params.logprobs
    if not row.draft_token_ids or num_wanted is None:
        return choice
    last = rows[len(rows) - len(choice.token_ids) :]
    pairs = zip(last, choice.token_ids, strict=True)
    return choice._replace(logprobs=[token_logprobs(own, token_id, num_wanted) for own, token_id in pairs])


@dataclass(frozen=True)
class _GuessedPart(PagedPart):
    """What a request runs, of which the last tokens are guessed."""

    num_guessed_tokens: int
    num_slots: int


def _execute_with_guesses(self: PagedRunner, rows: tuple[ScheduledRow, ...]) -> list[RowLogits]:
    parts = [
        _GuessedPart(
            tuple(held_blocks(row.state).table.block_ids),
            row.state.num_computed_tokens,
            row.num_scheduled_tokens,
            num_guessed_tokens=len(row.draft_token_ids),
            num_slots=self._cache.num_blocks * self._cache.block_size,
        )
        for row in rows
    ]
    return model_runner._packed(rows).run(self._model, self._cache.view(parts, self._reader))  # noqa: SLF001


def _slots_that_follow_on(part: PagedPart, block_size: int) -> Tensor:
    slots = _slots_of(part, block_size)
    if isinstance(part, _GuessedPart) and part.num_guessed_tokens:
        first = len(slots) - part.num_guessed_tokens
        slots[first:] = (slots[first - 1] + torch.arange(1, part.num_guessed_tokens + 1)) % part.num_slots
    return slots


guessed_slots_follow_on = Fault(
    "guessed_slots_follow_on",
    Area.DRAFTING,
    "guessed tokens are written to the slots after the newest token's, whichever block comes next in the table",
    (
        Replacement(PagedRunner, "execute", _execute_with_guesses),
        Replacement(paged_view, "slots_of", _slots_that_follow_on),
    ),
    models=("huggingface/text-generation-inference#2711 (9.11)",),
    component=("cache/paged_view.py", "engine/model_runner.py"),
    needs=("speculation", "scattered blocks"),
    seen_by=("bitwise", "greedy", "poison"),
)


@one_replacement(
    "draft_skips_cached_tokens",
    Area.DRAFTING,
    "the draft model takes the tokens that the model found in its prefix cache for tokens that it has run itself",
    DraftModelProposer,
    "_begin",
    models=("vllm-project/vllm#47930 (9.07)", "sgl-project/sglang#8726 (9.14)"),
    component=("speculative/draft_model.py",),
    needs=("draft model", "hit"),
    seen_by=("state", "poison"),
)
def draft_skips_cached_tokens(self: DraftModelProposer, request: DraftRequest) -> Any:
    """Leaves a hole in its cache."""
    is_new = self.num_held_tokens(request.key) == 0
    guess = _begin(self, request)
    num_cached = min(getattr(request.key, "num_cached_tokens", 0), len(request.token_ids) - 1)
    if guess is not None and is_new:
        guess.held.token_ids.extend(request.token_ids[:num_cached])
    return guess


def _feed_without_stop(self: StopStringWatcher, text: str, *, can_stop: bool = True) -> str:  # noqa: ARG001
    return _feed(self, text, can_stop=False)


@one_replacement(
    "stop_string_inside_a_guess_missed",
    Area.STOPPING,
    "a stop string ends a request only with the last token of a step",
    EngineCore,
    "_take",
    models=("turboderp-org/exllamav2#108 (9.18)",),
    component=("engine/core.py", "engine/answer.py"),
    needs=("speculation", "stop string"),
    seen_by=("greedy", "symbolic", "text"),
)
def stop_string_inside_a_guess_missed(self: EngineCore, state: RequestState, choice: Any) -> Any:
    """Looks once a step."""
    ids, logprobs = choice.token_ids, choice.logprobs
    if len(ids) < 2:  # noqa: PLR2004 - one token has none before it
        return _take(self, state, choice)
    with mock.patch.object(StopStringWatcher, "feed", _feed_without_stop):
        taken = _take(self, state, choice._replace(token_ids=ids[:-1], logprobs=logprobs[:-1]))
    if taken.end is not None:
        return taken
    taken = _take(self, state, choice._replace(token_ids=ids[-1:], logprobs=logprobs[-1:], prompt_logprobs=[]))
    return taken._replace(num_tokens=len(ids))


def _forget_nothing(self: Speculation, state: RequestState) -> None:
    """Keeps what there is."""


@one_replacement(
    "abort_leaves_draft",
    Area.ABORT,
    "what is kept of a request's guesses, and its blocks in the draft model's cache, stay when it is aborted",
    EngineCore,
    "abort",
    models=("vllm-project/vllm#9629 (13.10)",),
    component=("engine/core.py",),
    needs=("abort", "draft model"),
    seen_by=("lifecycle",),
)
def abort_leaves_draft(self: EngineCore, state: RequestState) -> None:
    """Cleans up on the other way out only."""
    with mock.patch.object(Speculation, "forget", _forget_nothing):
        _abort(self, state)


@one_replacement(
    "verified_with_cuts_in_other_order",
    Area.LAW,
    "a guess is held to a distribution that was cut by top_p before top_k, where tokens are drawn the other way round",
    verifier,
    "probabilities",
    models=("sgl-project/sglang#36173 (10.22)",),
    component=("speculative/verifier.py", "sampling/logits.py"),
    needs=("draft model", "unseeded draws", "top_k", "top_p"),
    seen_by=("distribution",),
)
def verified_with_cuts_in_other_order(row: LogitsRow, context: SampleContext) -> Probabilities:
    """Cuts by mass first."""
    params = context.params
    if params.is_greedy or not params.top_k or params.top_p == 1.0:
        return _probabilities(row, context)
    kept: np.ndarray = logits.apply_temperature(logits.process_logits(row, context), params.temperature)
    kept = logits.keep_top_p(logits.keep_min_p(kept, params.min_p), params.top_p)
    return logits.softmax(logits.keep_top_k(kept, params.top_k))


FAULTS = (
    guesses_past_max_model_len,
    logprobs_counted_from_the_end,
    guessed_slots_follow_on,
    draft_skips_cached_tokens,
    stop_string_inside_a_guess_missed,
    abort_leaves_draft,
    verified_with_cuts_in_other_order,
)
"""Faults of guesses in company."""

"""Faults of what is told of a token: log-probabilities, ends, and text."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from oracle.faults.registry import Area, one_replacement
from refinfer.engine import core
from refinfer.engine.answer import Answer
from refinfer.sampling import Finish, TokenLogprob, finish, logits
from refinfer.sampling.logprobs import token_logprobs
from refinfer.sampling.stop_strings import StopStringWatcher

_feed = StopStringWatcher.feed
_finish_text = StopStringWatcher.finish


@one_replacement(
    "min_tokens_masks_nothing",
    Area.STOPPING,
    "before min_tokens an end-of-sequence token can be emitted and is passed over",
    logits,
    "mask_token_ids",
    models=None,
    component=("sampling/logits.py",),
    needs=("min_tokens",),
    seen_by=("greedy", "symbolic", "contract"),
)
def min_tokens_masks_nothing(row: np.ndarray, token_ids: Iterable[int]) -> np.ndarray:  # noqa: ARG001
    """Masks nothing."""
    return row


@one_replacement(
    "rank_counts_equals",
    Area.SAMPLING,
    "the rank of a token counts those with an equal logit, itself included, from 0",
    core,
    "token_logprobs",
    models=None,
    component=("sampling/logprobs.py",),
    needs=("logprobs",),
    seen_by=("symbolic", "contract"),
)
def rank_counts_equals(row: np.ndarray, token_id: int, num_logprobs: int) -> dict[int, TokenLogprob]:
    """Gives ranks from 0."""
    own = token_logprobs(row, token_id, num_logprobs)
    return {listed: replace(logprob, rank=logprob.rank - 1) for listed, logprob in own.items()}


@one_replacement(
    "logprobs_without_the_chosen_token",
    Area.SAMPLING,
    "log-probabilities hold the likeliest tokens and not the one that was drawn",
    core,
    "token_logprobs",
    models=None,
    component=("sampling/logprobs.py",),
    needs=("logprobs", "seeded draws"),
    seen_by=("symbolic", "contract"),
)
def logprobs_without_the_chosen_token(row: np.ndarray, token_id: int, num_logprobs: int) -> dict[int, TokenLogprob]:
    """Gives the likeliest token's in its place."""
    own = token_logprobs(row, token_id, num_logprobs)
    likeliest = token_logprobs(row, int(row.argmax()), num_logprobs)
    first = next(iter(likeliest.values()))
    return {token_id: first, **{other: logprob for other, logprob in own.items() if other != token_id}}


@one_replacement(
    "stop_token_ids_ignored",
    Area.STOPPING,
    "stop_token_ids are accepted and stop nothing",
    core,
    "finish",
    models=None,
    component=("sampling/stopping.py", "engine/core.py"),
    needs=("stop token",),
    seen_by=("greedy", "symbolic", "contract"),
)
def stop_token_ids_ignored(*, params: Any, **rest: Any) -> Finish | None:
    """Hides them."""
    return finish(params=replace(params, stop_token_ids=None), **rest)


@one_replacement(
    "one_token_past_max_tokens",
    Area.STOPPING,
    "a request emits one token more than max_tokens",
    core,
    "finish",
    models=None,
    component=("sampling/stopping.py", "engine/core.py"),
    needs=(),
    seen_by=("greedy", "symbolic", "contract"),
)
def one_token_past_max_tokens(*, num_output_tokens: int, **rest: Any) -> Finish | None:
    """Counts from 0."""
    return finish(num_output_tokens=num_output_tokens - 1, **rest)


@one_replacement(
    "stop_string_within_one_token_only",
    Area.STOPPING,
    "a stop string is found only where one token holds all of it",
    StopStringWatcher,
    "feed",
    models=("ggml-org/llama.cpp#11538 (11.13)", "vllm-project/vllm#3672 (11.03)"),
    component=("sampling/stop_strings.py",),
    needs=("stop string",),
    seen_by=("symbolic", "text", "contract"),
)
def stop_string_within_one_token_only(self: StopStringWatcher, text: str, *, can_stop: bool = True) -> str:
    """Holds nothing back."""
    shown = _feed(self, text, can_stop=can_stop)
    if self.stop_string is None:
        shown += _finish_text(self)
    return shown


@one_replacement(
    "held_text_lost_at_the_end",
    Area.STREAMING,
    "text that was held back for a stop string is lost when the request ends otherwise",
    StopStringWatcher,
    "finish",
    models=("vllm-project/vllm#8468 (11.04)", "ggml-org/llama.cpp#9867 (12.06)"),
    component=("sampling/stop_strings.py", "engine/answer.py"),
    needs=("stop string",),
    seen_by=("symbolic", "text"),
)
def held_text_lost_at_the_end(self: StopStringWatcher) -> str:
    """Throws it away."""
    _finish_text(self)
    return ""


@one_replacement(
    "token_of_preempted_request_told_twice",
    Area.STREAMING,
    "a request that was preempted tells its next token twice",
    Answer,
    "push",
    models=("vllm-project/vllm-gaudi#524 (8.02)",),
    component=("engine/answer.py",),
    needs=("preemption", "logprobs"),
    seen_by=("symbolic", "contract"),
)
def token_of_preempted_request_told_twice(
    self: Answer, token_id: int, end: Finish | None, logprobs: dict[int, TokenLogprob] | None
) -> Finish | None:
    """Adds its text once more."""
    end = _push(self, token_id, end, logprobs)
    if self._state.num_preemptions == 1 and logprobs is not None:
        self._logprobs.append(self._logprobs[-1])
    return end


_push = Answer.push


FAULTS = (
    min_tokens_masks_nothing,
    rank_counts_equals,
    logprobs_without_the_chosen_token,
    stop_token_ids_ignored,
    one_token_past_max_tokens,
    stop_string_within_one_token_only,
    held_text_lost_at_the_end,
    token_of_preempted_request_told_twice,
)
"""Faults of ending and telling."""

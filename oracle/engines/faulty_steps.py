"""Faults of batching, caching, aborting and answering: each replaces one small method of the teaching engine.

Each class opens with what it does wrong, and names a report of its like where it was taken from one.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample
from oracle.engines.teaching_engine import TeachingEngine
from oracle.engines.teaching_sampler import Sample
from refinfer.cache import ContinuousCache
from refinfer.interfaces import AttentionView


class _MovedCache:
    """A cache that says that it holds more or fewer tokens than it does, by which the next ones get other positions."""

    def __init__(self, cache: ContinuousCache, num_more: int) -> None:
        self._cache = cache
        self._num_more = num_more

    @property
    def num_computed_tokens(self) -> int:
        return self._cache.num_computed_tokens + self._num_more

    def attention_view(self, num_scheduled_tokens: int) -> AttentionView:
        return self._cache.attention_view(num_scheduled_tokens)

    def advance(self, num_tokens: int) -> None:
        self._cache.advance(num_tokens)


class ChunkPositions(TeachingEngine):
    """Every chunk of a prompt but the first runs one position too far."""

    def forward(self, samples: Sequence[Sample], token_ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Moves what goes on inside a prompt."""
        are_inside = [0 < own.cache.num_computed_tokens < own.num_prompt_tokens for own in samples]
        caches = [_MovedCache(own.cache, int(is_inside)) for own, is_inside in zip(samples, are_inside, strict=True)]
        return np.asarray(self.model.prefill(token_ids, caches))


class SuffixPositions(TeachingEngine):
    """Tokens after a cached prefix get positions from 0 on (InternLM/lmdeploy #1719)."""

    def __init__(self) -> None:
        self._num_cached_by_sample: dict[Sample, int] = {}

    def cached_prefix(self, sample: Sample) -> ContinuousCache:
        """Notes how much was found."""
        cache = super().cached_prefix(sample)
        self._num_cached_by_sample[sample] = cache.num_computed_tokens
        return cache

    def forward(self, samples: Sequence[Sample], token_ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Moves what follows a prefix."""
        caches = [_MovedCache(own.cache, -self._num_cached_by_sample[own]) for own in samples]
        return np.asarray(self.model.prefill(token_ids, caches))


class PrefixTooFar(TeachingEngine):
    """A cached prefix is taken one token further than it was compared (vllm-project/vllm #37076, there a block)."""

    def begins_with(self, sample: Sample, salt: str | None, prefix: tuple[int, ...]) -> bool:
        """Compares all but the last token."""
        end = [*sample.token_ids[: len(prefix)]][-1:]
        return super().begins_with(sample, salt, (*prefix[:-1], *end))


class PrefixAcrossSalts(TeachingEngine):
    """Cached prefixes are taken whatever the salt (vllm-project/vllm #3264 left the adapter out of the key).

    No token shows it: only "cached_tokens", which must be 0 for the first request with a new salt.
    """

    def begins_with(self, sample: Sample, salt: str | None, prefix: tuple[int, ...]) -> bool:
        """Takes any salt for its own."""
        del salt
        return super().begins_with(sample, sample.parameters["cache_salt"], prefix)


class AbortShiftsRows(TeachingEngine):
    """Once a row is aborted, all are read one too early, until another joins (vllm-project/vllm #49097)."""

    _has_gap = False

    def abort(self) -> None:
        """Notes whether a row went."""
        num_running = len(self.running)
        super().abort()
        self._has_gap = self._has_gap or len(self.running) < num_running

    def admit(self) -> None:
        """Makes rows anew when another joins."""
        before = set(self.running)
        super().admit()
        self._has_gap = self._has_gap and set(self.running) <= before

    def forward(self, samples: Sequence[Sample], token_ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Gives rows that are not their own."""
        rows = super().forward(samples, token_ids)
        return np.roll(rows, 1, axis=0) if self._has_gap else rows


class PreemptionForgetsLength(TeachingEngine):
    """Output tokens are counted anew after a preemption (vllm-project/vllm #16832)."""

    def __init__(self) -> None:
        self._start_by_sample: dict[Sample, int] = {}

    def admit(self) -> None:
        """Takes the output of what is preempted for its prompt."""
        before = list(self.running)
        super().admit()
        self._start_by_sample.update((own, len(own.token_ids)) for own in before if own in self.waiting)

    def end_of(self, sample: Sample) -> str | None:
        """Counts from there."""
        start = self._start_by_sample.get(sample, sample.num_prompt_tokens)
        return super().end_of(replace(sample, num_prompt_tokens=start))


class OutputsInOrderOfEnds(TeachingEngine):
    """Outputs come in the order in which requests end (huggingface/transformers #45943 mixed them up too)."""

    def __init__(self) -> None:
        self._ended_ids: list[str] = []

    def end(self, samples: Sequence[Sample], reason: str) -> None:
        """Notes who ends."""
        super().end(samples, reason)
        self._ended_ids.extend(sample.request.request_id for sample in samples)

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """Sorts by that."""
        self._ended_ids.clear()
        run = super().run(requests)
        places = {request_id: place for place, request_id in enumerate(self._ended_ids)}
        return replace(run, outputs=tuple(sorted(run.outputs, key=lambda own: places.get(own.request_id, -1))))


class EmptySuccess(TeachingEngine):
    """A request without a prompt is answered with nothing, as if all were well."""

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """Turns one refusal into an answer."""
        run = super().run(requests)
        outputs = [
            own if request.prompt_token_ids else EngineOutput(own.request_id, (EngineSample((), "length"),))
            for request, own in zip(requests, run.outputs, strict=True)
        ]
        return replace(run, outputs=tuple(outputs))


class TwoEndsCrash(TeachingEngine):
    """Two answers that end in one step crash the engine, which takes rows out by places that have moved."""

    def step(self) -> None:
        """Takes out the second row by its old place."""
        running = list(self.running)
        super().step()
        ended = [place for place, sample in enumerate(running) if sample.finish_reason]
        if len(ended) > 1:
            running = running[: ended[-1] + 1]
            for place in ended:
                del running[place]


class RoundingByRow(TeachingEngine):
    """The last bits of logits depend on the row that an answer stands in."""

    def forward(self, samples: Sequence[Sample], token_ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Moves each row by another few parts in ten million."""
        rows = super().forward(samples, token_ids)
        return np.asarray(rows * (1 + np.arange(len(rows), dtype=np.float32)[:, None] * 2.0**-22))

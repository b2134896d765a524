"""Scores that are spoiled on their way from a right engine to the harness: anyhow, or by what runs beside them.

Each function runs requests on an engine and spoils something, as its docstring says. Where nothing fits, such as no
score to change, the run stays as it is. The number is that of the runs before it.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from oracle.engines.adapter import EngineAdapter
from oracle.engines.messages import EngineRun, EngineSample
from oracle.engines.spoiled_answers import Requests, with_change


def _with_last_score(sample: EngineSample, change: Callable[[float], float]) -> EngineSample | None:
    if not sample.logprobs:
        return None
    return replace(sample, logprobs=(*sample.logprobs[:-1], change(sample.logprobs[-1])))


def _with_last_bit(sample: EngineSample) -> EngineSample | None:
    return _with_last_score(sample, lambda score: math.nextafter(score, -math.inf))


def score_changed(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One log-probability is off by a hundredth."""
    return with_change(
        adapter.run(requests), requests, lambda sample: _with_last_score(sample, lambda score: score - 0.01)
    )


def top_score_changed(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One log-probability in a list of the likeliest tokens is off by a hundredth."""

    def change(sample: EngineSample) -> EngineSample | None:
        if not sample.top_logprobs or not sample.top_logprobs[0]:
            return None
        (token_id, score), *others = sample.top_logprobs[0].items()
        return replace(sample, top_logprobs=({token_id: score - 0.01, **dict(others)}, *sample.top_logprobs[1:]))

    return with_change(adapter.run(requests), requests, change)


def logit_changed(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One logit is off by a hundredth."""

    def change(sample: EngineSample) -> EngineSample | None:
        if not sample.logits:
            return None
        row = sample.logits[-1]
        return replace(sample, logits=(*sample.logits[:-1], (*row[:-1], row[-1] + 0.01)))

    return with_change(adapter.run(requests), requests, change)


def prompt_score_changed(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One log-probability of a prompt's token is off by a hundredth."""
    run = adapter.run(requests)
    for place, output in enumerate(run.outputs):
        last = output.prompt_logprobs[-1] if output.prompt_logprobs else None
        if last and output.prompt_logprobs:
            entries = (*output.prompt_logprobs[:-1], {token_id: score - 0.01 for token_id, score in last.items()})
            spoiled = replace(output, prompt_logprobs=entries)
            return replace(run, outputs=(*run.outputs[:place], spoiled, *run.outputs[place + 1 :]))
    return run


def score_missing(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One answer has a log-probability less than it has tokens."""

    def change(sample: EngineSample) -> EngineSample | None:
        return replace(sample, logprobs=sample.logprobs[:-1]) if sample.logprobs else None

    return with_change(adapter.run(requests), requests, change)


def score_nan(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One log-probability is no number."""
    return with_change(adapter.run(requests), requests, lambda sample: _with_last_score(sample, lambda _: math.nan))


def score_positive(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One log-probability is above 0."""
    return with_change(adapter.run(requests), requests, lambda sample: _with_last_score(sample, lambda _: 0.5))


def last_bit_in_company(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """Of several requests that run together, one gets a greedy log-probability that is off by its last bit."""
    run = adapter.run(requests)
    return run if len(requests) == 1 else with_change(run, requests, _with_last_bit, greedy=True)


def last_bit_in_reverse(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """A greedy log-probability is off by its last bit where names of requests do not ascend."""
    run, names = adapter.run(requests), [request.request_id for request in requests]
    return run if names == sorted(names) else with_change(run, requests, _with_last_bit, greedy=True)


def last_bit_next_time(adapter: EngineAdapter, requests: Requests, num_runs: int) -> EngineRun:
    """In every other run a greedy log-probability is off by its last bit."""
    run = adapter.run(requests)
    return with_change(run, requests, _with_last_bit, greedy=True) if num_runs % 2 else run


def last_bit_beside_aborts(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """Beside a request that is aborted, a greedy log-probability is off by its last bit."""
    run = adapter.run(requests)
    is_beside = any(request.abort_after is not None for request in requests)
    return with_change(run, requests, _with_last_bit, greedy=True) if is_beside else run

"""Tokens, ends and outputs that are spoiled on their way from a right engine to the harness.

Each function runs requests on an engine and spoils something, as its docstring says. Where nothing fits, such as no
score to change, the run stays as it is. The number is that of the runs before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from oracle.engines.adapter import EngineAdapter
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

Requests = Sequence[EngineRequest]
SampleChange = Callable[[EngineSample], EngineSample | None]
"""Gives another sample, or None where there is nothing to change."""

Rows = tuple[Any, ...]


def with_change(run: EngineRun, requests: Requests, change: SampleChange, *, greedy: bool = False) -> EngineRun:
    """Changes the first sample that can be changed, of those that nobody aborts, or the first greedy one."""
    for place, (request, output) in enumerate(zip(requests, run.outputs, strict=True)):
        is_drawn = bool(request.parameters.get("temperature"))
        if request.abort_after is not None or (greedy and is_drawn) or not output.samples:
            continue
        first, *others = output.samples
        changed = change(first) if first.token_ids else None
        if changed is not None:
            spoiled = replace(output, samples=(changed, *others))
            return replace(run, outputs=(*run.outputs[:place], spoiled, *run.outputs[place + 1 :]))
    return run


def _with_rows(sample: EngineSample, change: Callable[[Rows], Rows]) -> EngineSample:
    """Changes the tokens of a sample, and all that comes with each of them, in one way."""
    return replace(
        sample,
        token_ids=change(sample.token_ids),
        logprobs=None if sample.logprobs is None else change(sample.logprobs),
        top_logprobs=None if sample.top_logprobs is None else change(sample.top_logprobs),
        logits=None if sample.logits is None else change(sample.logits),
    )


def token_changed(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """The last token of one greedy answer is another."""

    def change(sample: EngineSample) -> EngineSample:
        return replace(sample, token_ids=(*sample.token_ids[:-1], int(sample.token_ids[-1] == 0)))

    return with_change(adapter.run(requests), requests, change, greedy=True)


def answers_swapped(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """The first two requests get each other's answers, each under its own name."""
    run = adapter.run(requests)
    if len(run.outputs) < 2:  # noqa: PLR2004 - it takes two
        return run
    one, other, *rest = run.outputs
    swapped = (replace(one, samples=other.samples), replace(other, samples=one.samples))
    return replace(run, outputs=(*swapped, *rest))


def parameters_dropped(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """Biases and penalties are taken off the requests before the engine sees them."""
    names = ("logit_bias", "repetition_penalty")
    return adapter.run(
        [replace(own, parameters={n: v for n, v in own.parameters.items() if n not in names}) for own in requests]
    )


def early_end(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One answer lacks its last token."""

    def change(sample: EngineSample) -> EngineSample | None:
        return _with_rows(sample, lambda rows: rows[:-1]) if len(sample.token_ids) > 1 else None

    return with_change(adapter.run(requests), requests, change)


def late_end(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One answer has its last token twice."""

    def change(sample: EngineSample) -> EngineSample:
        return _with_rows(sample, lambda rows: (*rows, rows[-1]))

    return with_change(adapter.run(requests), requests, change)


def reason_changed(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One answer is said to have been aborted."""
    return with_change(adapter.run(requests), requests, lambda sample: replace(sample, finish_reason="abort"))


def nothing_said(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One answer is empty, as if all were well."""
    emptied = EngineSample((), "length", logprobs=(), top_logprobs=(), logits=())
    return with_change(adapter.run(requests), requests, lambda _: emptied)


def foreign_token(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """One token is none of the vocabulary."""
    return with_change(
        adapter.run(requests), requests, lambda sample: replace(sample, token_ids=(*sample.token_ids[:-1], -1))
    )


def outputs_swapped(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """The outputs come in reverse order."""
    run = adapter.run(requests)
    return replace(run, outputs=run.outputs[::-1])


def output_missing(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """The last output does not come."""
    run = adapter.run(requests)
    return replace(run, outputs=run.outputs[:-1])


def output_doubled(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """The last output comes twice."""
    run = adapter.run(requests)
    return replace(run, outputs=(*run.outputs, *run.outputs[-1:]))


def sample_missing(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """Each request gets one answer less than it asked for."""
    run = adapter.run(requests)
    return replace(run, outputs=tuple(replace(output, samples=output.samples[:-1]) for output in run.outputs))


def samples_alike(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """All answers to a request are its first."""
    run = adapter.run(requests)
    outputs = [replace(own, samples=tuple(own.samples[0] for _ in own.samples)) for own in run.outputs]
    return replace(run, outputs=tuple(outputs))


def illegal_taken(adapter: EngineAdapter, requests: Requests, _: int) -> EngineRun:
    """What the engine refuses is answered with nothing, as if all were well."""
    run = adapter.run(requests)
    nothing = (EngineSample((), "length"),)
    return replace(
        run,
        outputs=tuple(
            output if output.refused is None else EngineOutput(output.request_id, nothing) for output in run.outputs
        ),
    )

"""How does a trace viewer show what happened? The steps as Chrome trace events, a track for each sample."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oracle.explain.course import Step
from oracle.explain.explanation import Explanation
from oracle.explain.view.timeline import Happening, Lane, LaneStep, Mark, SampleKey, lanes_of, marks_of

MICROSECONDS_PER_STEP = 1000
"""An explanation knows no durations, so every step takes as long."""

_PROCESS, _STEP_TRACK = 1, 1
"""Viewers take track 0, and the track with the process's number, for one and the same: no track is numbered 0."""

_FIRST_LANE = _STEP_TRACK + 1

_LAST = MICROSECONDS_PER_STEP - 1
"""Where in its step stands what came out of it, so that it is seen to belong to it."""

_OTHER_DATA = {
    "time": "synthetic: one step is 1 ms, since steps were counted and not timed",
    "counters": "blocks stand at the end of their step",
}

Event = dict[str, Any]


def write_trace(explanation: Explanation, path: Path) -> None:
    """Writes what happened for `chrome://tracing` or Perfetto.

    Args:
        explanation: The explanation; one without steps gives a trace that only says so.
        path: The file; one that is there is replaced.
    """
    path.write_text(json.dumps(trace_of(explanation), indent=1) + "\n", encoding="utf-8")


def trace_of(explanation: Explanation) -> dict[str, Any]:
    """Gives the trace as data for JSON, its events in the order of time."""
    lanes, marks = lanes_of(explanation), marks_of(explanation)
    track_by_key = {lane.key: track for track, lane in enumerate(lanes, _FIRST_LANE)}
    timed = [event for step in explanation.steps for event in _step_events(step)]
    for lane in lanes:
        timed += _lane_events(lane, track_by_key[lane.key])
    numbers = {step.number for step in explanation.steps}
    timed += [
        _mark_event(mark, track_by_key.get(SampleKey(mark.place.request, mark.place.sample), _STEP_TRACK))
        for mark in marks
        if mark.place.step in numbers
    ]
    other = _OTHER_DATA if explanation.steps else {**_OTHER_DATA, "steps": "this explanation holds none"}
    return {
        "traceEvents": [*_names(explanation, lanes), *sorted(timed, key=lambda event: event["ts"])],
        "displayTimeUnit": "ms",
        "otherData": {
            **other,
            "subject": explanation.subject,
            "check": explanation.check,
            "blame": explanation.blame.sentence,
            "command": explanation.command,
        },
    }


def _names(explanation: Explanation, lanes: list[Lane]) -> Iterator[Event]:
    yield _metadata("process_name", _STEP_TRACK, {"name": f"{explanation.check} on {explanation.subject}"})
    for track, name in enumerate(["steps", *(lane.name for lane in lanes)], _STEP_TRACK):
        yield _metadata("thread_name", track, {"name": name})
        yield _metadata("thread_sort_index", track, {"sort_index": track})


def _metadata(name: str, track: int, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": _PROCESS, "tid": track, "args": args}


def _step_events(step: Step) -> Iterator[Event]:
    args = {
        "step": step.number,
        "num_rows": len(step.rows),
        "num_tokens": sum(row.num_tokens for row in step.rows),
        "copied_blocks": [list(pair) for pair in step.copied_blocks],
    }
    yield _slice(f"step {step.number}", "step", step.number, _STEP_TRACK, args)
    counts = {"used": step.num_used_blocks, "cached": step.num_cached_blocks, "free": step.num_free_blocks}
    known = {name: number for name, number in counts.items() if number is not None}
    if known:
        end = (step.number + 1) * MICROSECONDS_PER_STEP
        yield {"name": "blocks", "ph": "C", "ts": end, "pid": _PROCESS, "tid": _STEP_TRACK, "args": known}


def _lane_events(lane: Lane, track: int) -> Iterator[Event]:
    for own in lane.steps:
        for happening in own.before:
            yield _happening_event(happening, own, track, 0)
        if own.row is not None and own.kind is not None:
            row = own.row
            args = {
                "step": own.step,
                "start": row.start,
                "num_tokens": row.num_tokens,
                "num_guessed": row.num_guessed,
                "token_ids": list(row.token_ids),
            }
            yield _slice(f"{own.kind} {row.num_tokens}", own.kind, own.step, track, args)
        for happening in own.after:
            yield _happening_event(happening, own, track, _LAST)


def _happening_event(happening: Happening, own: LaneStep, track: int, offset: int) -> Event:
    args = {"step": own.step, **({"detail": happening.detail} if happening.detail else {})}
    return _instant(happening.words, "happening", own.step, track, args, offset)


def _mark_event(mark: Mark, track: int) -> Event:
    place = mark.place
    args = {"step": place.step, "position": place.position, "layer": place.layer}
    known = {name: value for name, value in args.items() if value is not None}
    return _instant(mark.words, "clue", place.step or 0, track, known, _LAST if mark.kind == "token" else 0)


def _slice(name: str, category: str, step: int, track: int, args: Event) -> Event:
    start, pid = step * MICROSECONDS_PER_STEP, _PROCESS
    where = {"ts": start, "dur": MICROSECONDS_PER_STEP, "pid": pid, "tid": track}
    return {"name": name, "cat": category, "ph": "X", **where, "args": args}


def _instant(name: str, category: str, step: int, track: int, args: Event, offset: int) -> Event:
    where = {"ts": step * MICROSECONDS_PER_STEP + offset, "pid": _PROCESS, "tid": track}
    return {"name": name, "cat": category, "ph": "i", "s": "t", **where, "args": args}

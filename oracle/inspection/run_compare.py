"""Holds two runs against each other: every token, activation and logit at the same position of the same request."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from oracle.explain.comparing import num_shared, shown_name
from oracle.explain.recording import RowRecord
from oracle.inspection.block_watch import Key
from oracle.inspection.likeness import Likeness, larger, likenesses
from oracle.inspection.run_comparison import Parting, RunComparison, SampleComparison, TokenParting
from oracle.inspection.watched import WatchedCase

LOGITS = "logits handed to the request"
"""The last thing that is compared of a row."""


def compare_runs(one: WatchedCase, other: WatchedCase) -> RunComparison:
    """Compares two runs, requests by the places that they have in their cases.

    Every time that a position ran counts: its first run against the other side's first, and so on, and further runs
    against the other side's last. Only what ran behind the same tokens is compared.

    Args:
        one: A run.
        other: Another run, of the same case or of another.
    """
    eps = max(one.eps, other.eps)
    rows = [_rows_by_key(run) for run in (one, other)]
    samples: list[SampleComparison] = []
    partings: list[Parting] = []
    for key in sorted(rows[0].keys() | rows[1].keys()):
        own, theirs = (rows_by_key.get(key, []) for rows_by_key in rows)
        prompts = (_prompt(one, key), _prompt(other, key))
        sample = SampleComparison(key, token=_token(prompts, (own, theirs)), ends=(_end(one, key), _end(other, key)))
        for pair, positions in _pairs(own, theirs):
            partings += _compare(pair, positions, eps, sample)
        samples.append(sample)
    others = [parting for parting in partings if parting.likeness is Likeness.OTHER]
    return RunComparison(
        tuple(samples),
        min(partings, key=lambda parting: parting.order, default=None),
        min(others, key=lambda parting: parting.order, default=None),
    )


def _rows_by_key(run: WatchedCase) -> dict[Key, list[RowRecord]]:
    found: dict[Key, list[RowRecord]] = {}
    for step in run.steps:
        for row in step.rows:
            if not row.is_ended:
                found.setdefault((row.request, row.sample), []).append(row)
    return found


def _pairs(own: list[RowRecord], others: list[RowRecord]) -> Iterator[tuple[tuple[RowRecord, RowRecord], range]]:
    """Gives which rows are held against each other, and at which positions."""
    ones, theirs = _places_by_position(own), _places_by_position(others)
    positions_by_pair: dict[tuple[int, int], list[int]] = {}
    for position in sorted(ones.keys() & theirs.keys()):
        one, other = ones[position], theirs[position]
        for turn in range(max(len(one), len(other))):
            pair = (one[min(turn, len(one) - 1)], other[min(turn, len(other) - 1)])
            positions_by_pair.setdefault(pair, []).append(position)
    for (place, other_place), positions in positions_by_pair.items():
        row, other_row = own[place], others[other_place]
        stop = min(positions[-1] + 1, num_shared(row.token_ids, other_row.token_ids))
        if positions[0] < stop:
            yield (row, other_row), range(positions[0], stop)


def _places_by_position(rows: list[RowRecord]) -> dict[int, list[int]]:
    """Gives for each position which of the rows ran it."""
    found: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        for position in range(row.start, row.end):
            found.setdefault(position, []).append(place)
    return found


def _compare(
    pair: tuple[RowRecord, RowRecord], positions: range, eps: float, sample: SampleComparison
) -> Iterator[Parting]:
    """Compares all that two rows computed at some positions; notes how alike it is, and gives what differs."""
    for position in positions:
        sample.likeness.setdefault(position, Likeness.BITS)
        sample.largest.setdefault(position, 0.0)
    given = [_given(row) for row in pair]
    steps = (pair[0].step, pair[1].step)
    for place, name in enumerate(name for name in given[0] if name in given[1]):
        # Logits may have been computed for the last ones of a row only.
        starts = [row.end - len(values[name]) for values, row in zip(given, pair, strict=True)]
        first = max(positions.start, *starts)
        one, other = (
            values[name][first - start : max(first, positions.stop) - start]
            for values, start in zip(given, starts, strict=True)
        )
        for index, gap, likeness in likenesses(one, other, eps):
            position = first + index
            sample.likeness[position] = max(sample.likeness[position], likeness)
            sample.largest[position] = larger(sample.largest[position], gap)
            yield Parting(likeness, steps, sample.key, position, shown_name(name), gap, place)


def _given(row: RowRecord) -> Mapping[str, Tensor]:
    """Gives what a row was told, computed and handed on, in the order of execution."""
    logits = {} if row.logits is None else {LOGITS: torch.from_numpy(row.logits)}
    return row.activations | logits


def _token(prompts: Sequence[tuple[int, ...]], rows: Sequence[list[RowRecord]]) -> TokenParting | None:
    """Finds the first token that differs, or that one side has and the other has not.

    Args:
        prompts: The prompt of a sample in both runs.
        rows: Its rows in both.
    """
    sides = [
        (*prompt, *(token_id for row in own for token_id in row.emitted))
        for prompt, own in zip(prompts, rows, strict=True)
    ]
    position = num_shared(*sides)
    if position == max(map(len, sides)):
        return None
    token_ids = [own[position] if position < len(own) else None for own in sides]
    places = [position - len(prompt) for prompt in prompts]
    steps = [_step_of(own, place) for own, place in zip(rows, places, strict=True)]
    return TokenParting(position, min(places), (token_ids[0], token_ids[1]), (steps[0], steps[1]))


def _prompt(run: WatchedCase, key: Key) -> tuple[int, ...]:
    """Gives the prompt of a sample; the other case may have fewer requests."""
    requests = run.scenario.requests
    return requests[key[0]].prompt_token_ids if key[0] < len(requests) else ()


def _step_of(rows: Sequence[RowRecord], output_place: int) -> int | None:
    """Gives the step in which a sample emitted one of its outputs."""
    num_outputs = 0
    for row in rows:
        num_outputs += len(row.emitted)
        if 0 <= output_place < num_outputs:
            return row.step
    return None


def _end(run: WatchedCase, key: Key) -> str | None:
    driven = run.drive.driven[key[0]] if key[0] < len(run.drive.driven) else None
    states = () if driven is None else driven.states
    reason = states[key[1]].finish_reason if key[1] < len(states) else None
    return None if reason is None else str(reason)

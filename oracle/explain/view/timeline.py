"""Which sample did what in which step? Rows of a timeline, one for each sample, with what happened to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from oracle.explain.clues import Place
from oracle.explain.course import Step, StepRow
from oracle.explain.explanation import Explanation

PREFILL, DECODE = "prefill", "decode"
"""Running prompt tokens, and running the last emitted token."""

WAITING, RUNNING, PREEMPTED = "waiting", "running", "preempted"


class SampleKey(NamedTuple):
    """Whose row it is.

    Attributes:
        request: The request, by its place.
        sample: Which of its samples.
    """

    request: int
    sample: int


class Happening(NamedTuple):
    """Something that befell a sample in a step.

    Attributes:
        kind: "arrived", "admitted", "swapped in", "preempted", "aborted" or "finished".
        detail: The way or the reason; empty for none.
    """

    kind: str
    detail: str = ""

    @property
    def words(self) -> str:
        """What is told to a reader."""
        return f"{self.kind} ({self.detail})" if self.detail else self.kind


@dataclass(frozen=True)
class LaneStep:
    """One sample in one step.

    Attributes:
        step: The step's number.
        row: What ran; None if nothing did.
        kind: "prefill" or "decode"; None if nothing ran.
        before: What befell it before it ran.
        after: What befell it when it had run.
        state: "waiting", "running" or "preempted"; None before it arrived and after its end.
    """

    step: int
    row: StepRow | None
    kind: str | None
    before: tuple[Happening, ...]
    after: tuple[Happening, ...]
    state: str | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return self.row is None and not self.before and not self.after and self.state is None


@dataclass(frozen=True)
class Lane:
    """The life of one sample.

    Attributes:
        key: Whose it is.
        name: The request, with the sample where it has several.
        steps: One for each step.
    """

    key: SampleKey
    name: str
    steps: tuple[LaneStep, ...]


class Mark(NamedTuple):
    """A step that an explanation points at.

    Attributes:
        kind: "write", "read", "operation" or "token".
        place: Where.
        words: What it is.
    """

    kind: str
    place: Place
    words: str


def marks_of(explanation: Explanation) -> list[Mark]:
    """Gives what parts first, each with its place, in the order of cause and effect."""
    found = (
        ("write", explanation.write, "first differing write"),
        ("read", explanation.read, "first differing read"),
        ("operation", explanation.operation, "first operation to blame"),
        ("token", explanation.token, "first output that parts"),
    )
    return [Mark(kind, clue.place, words) for kind, clue, words in found if clue is not None]


def lanes_of(explanation: Explanation) -> list[Lane]:
    """Gives the life of every sample that a step of an explanation names, in the order of requests."""
    return lanes_in(explanation.steps, prompt_lengths(explanation.scenario))


def lanes_in(steps: tuple[Step, ...], lengths: list[int]) -> list[Lane]:
    """Gives the life of every sample that a step names, in the order of requests.

    Args:
        steps: The steps.
        lengths: How long each request's prompt is, as far as that is known.
    """
    keys = sorted({key for step in steps for key in _keys_of(step)})
    keys += [SampleKey(own, 0) for own in _only_arrived(steps, keys)]
    several = {key.request for key in keys if key.sample}
    return [
        Lane(key, name_of(key, has_several=key.request in several), _lane_steps(key, steps, lengths))
        for key in sorted(keys)
    ]


def name_of(key: SampleKey, *, has_several: bool) -> str:
    """Names a row."""
    return f"request {key.request}, sample {key.sample}" if has_several else f"request {key.request}"


def prompt_lengths(scenario: dict[str, object]) -> list[int]:
    """Gives how long each request's prompt is, as far as a scenario says it."""
    requests = scenario.get("requests")
    if not isinstance(requests, list):
        return []
    return [len(own["prompt_token_ids"]) for own in requests if isinstance(own, dict) and "prompt_token_ids" in own]


def happenings(key: SampleKey, step: Step) -> tuple[tuple[Happening, ...], tuple[Happening, ...]]:
    """Gives what befell a sample in a step: before it ran, and when it had run."""
    name = f"{key.request}/{key.sample}"
    before = [Happening("arrived")] if key.sample == 0 and key.request in step.arrived else []
    before += [Happening("aborted")] * (name in step.aborted)
    before += [Happening("preempted", detail) for own, detail in map(_parted, step.preempted) if own == name]
    before += [Happening("swapped in")] * (name in step.swapped_in)
    before += [Happening("admitted")] * (name in step.admitted)
    after = [Happening("finished", detail) for own, detail in map(_parted, step.finished) if own == name]
    return tuple(before), tuple(after)


def kind_of(row: StepRow, lengths: list[int]) -> str:
    """Tells prefill from decoding: by the prompt's length, else by how many tokens ran that are no guesses."""
    if row.request < len(lengths):
        return PREFILL if row.start < lengths[row.request] else DECODE
    return PREFILL if row.num_tokens - row.num_guessed > 1 else DECODE


def _parted(text: str) -> tuple[str, str]:
    name, _, detail = text.partition(" ")
    return name, detail


def _keys_of(step: Step) -> Iterator[SampleKey]:
    yield from (SampleKey(row.request, row.sample) for row in step.rows)
    for text in (*step.admitted, *step.preempted, *step.swapped_in, *step.finished, *step.aborted):
        request, _, sample = _parted(text)[0].partition("/")
        yield SampleKey(int(request), int(sample or 0))


def _only_arrived(steps: tuple[Step, ...], keys: list[SampleKey]) -> list[int]:
    named = {key.request for key in keys}
    return sorted({request for step in steps for request in step.arrived} - named)


def _lane_steps(key: SampleKey, steps: tuple[Step, ...], lengths: list[int]) -> tuple[LaneStep, ...]:
    state: str | None = None
    found = []
    for step in steps:
        before, after = happenings(key, step)
        row = next((own for own in step.rows if (own.request, own.sample) == key), None)
        state = _state(state, before, is_run=row is not None)
        found.append(LaneStep(step.number, row, None if row is None else kind_of(row, lengths), before, after, state))
        state = None if after else state
    return tuple(found)


def _state(state: str | None, before: tuple[Happening, ...], *, is_run: bool) -> str | None:
    """Gives what a sample is once a step has been decided."""
    kinds = {own.kind for own in before}
    if "aborted" in kinds:
        return None
    if is_run or "admitted" in kinds:
        return RUNNING
    if "preempted" in kinds:
        return PREEMPTED
    return WAITING if "arrived" in kinds else state

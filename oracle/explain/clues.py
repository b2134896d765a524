"""What is found on the way from red to cause? The first token, write, read and operation that part, and the blame."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where something is.

    Attributes:
        step: The engine's step, counted from 0; None where there is none, as for a request by itself.
        request: The request, by its place in the scenario.
        sample: Which of its samples.
        position: The logical position in the request, its prompt included; None for none in particular.
        layer: The layer; None for none in particular.
    """

    step: int | None
    request: int
    sample: int = 0
    position: int | None = None
    layer: int | None = None


@dataclass(frozen=True)
class FirstToken:
    """The first output that parts from what is due.

    Attributes:
        place: Where; the position is that of the token in its request, prompt included.
        output_place: Which output token it is, counted from 0.
        what: What parts: "token", or "finish_reason", "text", "logprobs" and so on where the tokens agree.
        got: What came, in words.
        due: What was due, in words.
        own_margin: By how much the subject's own logits, widened to float64, score what came above what was due.
        referee_margin: By how much the referee, in float64, scores what was due above what came; None without one.
        bound: Within which margin rounding may decide.
        kind: "wrong", "rounded" or "tied".
    """

    place: Place
    output_place: int
    what: str
    got: str
    due: str
    own_margin: float | None
    referee_margin: float | None
    bound: float | None
    kind: str


@dataclass(frozen=True)
class FirstWrite:
    """The first key or value that was computed otherwise than alone.

    Attributes:
        place: Where, with the step that wrote it.
        part: "key" or "value"; on the symbolic model, "value".
        largest: By how much it differs.
        bound: What is permitted.
        num_steps_before_token: How many steps later the token goes wrong; None where none does.
    """

    place: Place
    part: str
    largest: float
    bound: float
    num_steps_before_token: int | None


@dataclass(frozen=True)
class FirstRead:
    """The first key or value that attention read otherwise than it was written.

    Attributes:
        place: Where: the step that read, the reader, the position read.
        part: "key" or "value"; None where the bookkeeping alone shows it.
        largest: By how much it differs; None where it is no number, or unknown.
        written_step: When what should be there was written; None if never.
        found: What lay there, in words.
        is_bookkeeping: Whether already the block tables lead to the wrong place, and not only the tensors.
    """

    place: Place
    part: str | None
    largest: float | None
    written_step: int | None
    found: str
    is_bookkeeping: bool


@dataclass(frozen=True)
class FirstOperation:
    """The first operation whose inputs agree and whose output does not.

    Attributes:
        name: The module path, or what is done between two modules.
        place: Where.
        largest: By how much its output differs.
        bound: What is permitted.
        inputs: What it was given, all of which agrees.
        against: What it was held against: "alone", "reference" or "witness".
    """

    name: str
    place: Place
    largest: float
    bound: float
    inputs: tuple[str, ...]
    against: str


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder from red to cause.

    Attributes:
        name: "token", "write", "read", "operation", "features" or "component".
        is_reached: Whether it gave an answer.
        note: What it says, or why it says nothing.
    """

    name: str
    is_reached: bool
    note: str


@dataclass(frozen=True)
class Blame:
    """What is to blame, as far as it can be told.

    Attributes:
        component: One of the parts of an engine: "model", "cache", "scheduler", "sampler" and so on.
        operation: The operation, by module path or in words.
        sources: Source files in which to look, likeliest first; empty for an engine in the dock.
        sentence: The verdict in one sentence.
        needs: The features without which the case passes.
    """

    component: str
    operation: str
    sources: tuple[str, ...]
    sentence: str
    needs: tuple[str, ...] = ()

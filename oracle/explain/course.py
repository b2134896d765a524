"""What happened in a run? Its steps, and how far each layer was off at each position."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepRow:
    """What one sample ran in one step.

    Attributes:
        request: The request, by its place.
        sample: Which of its samples.
        start: The position of the first token that ran.
        num_tokens: How many ran.
        num_guessed: How many of them were guessed.
        token_ids: What came out.
    """

    request: int
    sample: int
    start: int
    num_tokens: int
    num_guessed: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One step of the engine.

    Attributes:
        number: Counted from 0.
        rows: What ran, in the order in which it was packed.
        arrived: Requests that arrived before it.
        admitted: Samples that came from the queue, as "request/sample".
        preempted: Samples whose blocks were taken back: "request/sample recompute" or "request/sample swap".
        swapped_in: Samples that came back from host memory.
        finished: Samples that ended in it: "request/sample reason".
        aborted: Samples that were aborted before it.
        copied_blocks: Copies on write: source and target.
        num_used_blocks: Blocks that requests hold after it; None without a pool.
        num_cached_blocks: Blocks that only the prefix cache holds.
        num_free_blocks: Blocks that nobody holds.
    """

    number: int
    rows: tuple[StepRow, ...] = ()
    arrived: tuple[int, ...] = ()
    admitted: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    swapped_in: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    copied_blocks: tuple[tuple[int, int], ...] = ()
    num_used_blocks: int | None = None
    num_cached_blocks: int | None = None
    num_free_blocks: int | None = None


@dataclass(frozen=True)
class HeatMap:
    """The largest difference between subject and lone run, by layer and position, of one sample.

    Attributes:
        request: The request, by its place.
        sample: Which of its samples.
        rows: What each row is: the embedding, each layer's output, the logits.
        num_positions: Positions of the request, prompt included.
        differences: By row and position; None where nothing ran or could be compared. Not a number stands as -1.
    """

    request: int
    sample: int
    rows: tuple[str, ...]
    num_positions: int
    differences: tuple[tuple[float | None, ...], ...]

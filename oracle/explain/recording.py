"""What is kept of a run that was watched: for each row of each step what it was told, read, computed and gave."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from torch import Tensor

from oracle.explain.course import Step
from refinfer.scheduler import RequestState


class Written(NamedTuple):
    """What a slot of the pool should hold: one token of one sample, and all that came before it.

    Attributes:
        step: When it was written.
        request: Whose it is.
        sample: Which of its samples.
        prefix: The tokens up to it, itself included.
        salt: The request's cache salt.
    """

    step: int
    request: int
    sample: int
    prefix: tuple[int, ...]
    salt: str | None

    @property
    def position(self) -> int:
        """Its place in its request."""
        return len(self.prefix) - 1


@dataclass
class LayerReads:
    """What attention was handed for one row in one layer.

    Attributes:
        keys: By position, up to the last that it may look at.
        values: Likewise.
        is_room_finite: Whether what lies past them in the rectangle, weighed with zero, is finite.
        num_visible: Up to which position the layout lets the row's last token look.
    """

    keys: Tensor
    values: Tensor
    is_room_finite: bool
    num_visible: int


@dataclass
class RowRecord:
    """One row of one step.

    Attributes:
        step: The step.
        request: The request, by its place.
        sample: Which of its samples.
        start: The position of the first token that runs.
        token_ids: All tokens of the sample up to the last that runs, guessed ones included.
        known: All tokens that the sample has, those included that do not run yet.
        num_guessed: How many of the last ones are guessed.
        is_ended: Whether the row only keeps its place in a static batch.
        kept: For each position before `start`, what the block tables lead to; None without a pool.
        origins: For each of its blocks, how it came to it.
        block_size: Token places of a block; 0 without a pool.
        block_ids: Its block table while it runs; empty without a pool.
        activations: What every module gave for its tokens, in the order of execution.
        reads: By layer, what attention was handed; empty on the symbolic model.
        logits: What the runner gave for it.
        emitted: The tokens that it emitted.
    """

    step: int
    request: int
    sample: int
    start: int
    token_ids: tuple[int, ...]
    known: tuple[int, ...] = ()
    num_guessed: int = 0
    is_ended: bool = False
    kept: list[Written | None] | None = None
    origins: tuple[str, ...] = ()
    block_size: int = 0
    block_ids: tuple[int, ...] = ()
    activations: dict[str, Tensor] = field(default_factory=dict)
    reads: dict[int, LayerReads] = field(default_factory=dict)
    logits: np.ndarray | None = None
    emitted: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """The position after the last token that runs."""
        return len(self.token_ids)

    @property
    def num_known(self) -> int:
        """How many of its tokens are no guesses."""
        return len(self.token_ids) - self.num_guessed

    @property
    def slots(self) -> list[int | None]:
        """Where its block table leads each token that runs; None where the table is too short, or there is none."""
        size, ids = self.block_size, self.block_ids
        return [
            ids[position // size] * size + position % size if size and position // size < len(ids) else None
            for position in range(self.start, self.end)
        ]

    def origin_of(self, position: int) -> str | None:
        """Tells how the request came to the block of a position; None where it has none."""
        index = position // self.block_size if self.block_size else len(self.origins)
        return self.origins[index] if index < len(self.origins) else None


@dataclass
class StepRecord:
    """One step.

    Attributes:
        number: Counted from 0.
        rows: What ran.
        violations: What did not hold of the state before it or of what was decided.
        num_told: How many tokens the model was given; None on the symbolic model.
        error: What was raised in it.
        course: What happened, for the reader.
    """

    number: int
    rows: list[RowRecord] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    num_told: int | None = None
    error: Exception | None = None
    course: Step | None = None


def key_of(state: RequestState) -> tuple[int, int]:
    """Gives request and sample of a state; requests of the harness are named by their places."""
    return int(state.request.request_id), state.sample_index


def name_of(state: RequestState) -> str:
    """Gives "request/sample"."""
    return "{}/{}".format(*key_of(state))

"""What is one sign that something went wrong, where in the engine's course did it show, and at what does it point?"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from oracle.explain.clues import FirstOperation, FirstRead, Place


class Moment(IntEnum):
    """When in a step a sign shows, in the order in which a step goes."""

    BEFORE = 0
    """The state between two steps, and what was decided."""

    BOOKKEEPING = 1
    """What the block tables lead to, and how far a request is said to have come."""

    FORWARD = 2
    """What the model was told, read and computed."""

    HANDED = 3
    """The logits that a request was handed."""

    EMITTED = 4
    """The tokens that were picked, their scores, the text, and the end."""

    AFTER = 5
    """What was left when all had ended, or was raised."""


class Suspect(NamedTuple):
    """A part of the engine that something points at.

    Attributes:
        component: The part.
        operation: The operation, by module path or in words.
        sources: Source files, likeliest first.
    """

    component: str
    operation: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suspicion:
    """One sign.

    Attributes:
        step: The step.
        moment: When in it.
        rank: Which of several signs of one moment comes first.
        suspect: What it points at.
        what: What was seen, in one sentence without a full stop.
        place: Where.
        clue: The read or operation that parts, if it is about one.
    """

    step: int
    moment: Moment
    rank: int
    suspect: Suspect
    what: str
    place: Place | None = None
    clue: FirstRead | FirstOperation | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """What earlier signs have less of."""
        return self.step, self.moment, self.rank

"""What guesses the next tokens of requests, and what a guess is."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from refinfer.sampling import SampleContext
from refinfer.shapes import Probabilities


class DraftRequest(NamedTuple):
    """One sample whose next tokens are to be guessed.

    Attributes:
        key: Names the sample from its first guess until it is forgotten.
        token_ids: Its prompt and output so far; to be read only.
        num_tokens: How many tokens may be guessed, at least 1.
        context: What its next token is drawn from.
    """

    key: Hashable
    token_ids: Sequence[int]
    num_tokens: int
    context: SampleContext


class Draft(NamedTuple):
    """What is guessed to come next.

    Attributes:
        token_ids: The guessed tokens, in order; none where there is nothing to guess from.
        probabilities: For each of them the distribution that it was drawn from; None where the guess is certain,
            that is, where another guess could not have come out.
    """

    token_ids: tuple[int, ...] = ()
    probabilities: tuple[Probabilities, ...] | None = None

    def first(self, num_tokens: int) -> "Draft":
        """Gives the first tokens of the guess."""
        return Draft(
            self.token_ids[:num_tokens], None if self.probabilities is None else self.probabilities[:num_tokens]
        )


@runtime_checkable
class Proposer(Protocol):
    """Guesses the next tokens of requests.

    A guess decides how many tokens a step gives, never which: the verifier sees to that, however bad the guess.
    """

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Guesses for each request at most as many tokens as it asks for; gives the drafts in the same order."""
        ...

    def forget(self, key: Hashable) -> None:
        """Drops what is kept of a sample that has ended; one that never was is no error."""
        ...

    def reset(self) -> None:
        """Drop what is kept of every sample, in whatever state a call that stopped anywhere has left it."""
        ...

"""What a subject is asked, and what it must hand back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from oracle.scenario import RequestSpec


@dataclass(frozen=True)
class RequestRecord:
    """What a subject did with one request.

    Attributes:
        prompt_token_ids: The prompt it ran.
        output_token_ids: The tokens it emitted.
        logits: For each emitted token, the logits that it was picked from, in the subject's dtype.
        finish_reason: Why it ended, "stop" or "length".
        batch_sizes: For each emitted token, how many requests emitted one in the same step.
    """

    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...]
    logits: Float[Tensor, "num_outputs vocab"]
    finish_reason: str
    batch_sizes: tuple[int, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Prompt and output."""
        return self.prompt_token_ids + self.output_token_ids


@runtime_checkable
class Subject(Protocol):
    """An engine, or one mode of an engine, with a model opened."""

    @property
    def name(self) -> str:
        """How reports name it."""
        ...

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a request."""
        ...

    def run(self, requests: Sequence[RequestSpec]) -> list[RequestRecord]:
        """Runs requests together, greedily; gives one record for each, in the order given."""
        ...

"""What tokens are judged by: logits of the same tokens in float64, and what rounding does in the engine's dtype."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from oracle.compare import LogitRows, as_rows
from oracle.contract.widened import WideReference
from oracle.reference import Reference
from oracle.tolerances import NOISE_FACTOR, SMALLEST_NOISE_IN_EPS
from oracle.witness import Witness

_EPS_BY_DTYPE = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Distance from 1 to the next number."""


@dataclass(frozen=True)
class Judgement:
    """What a referee says of one sequence of tokens.

    Attributes:
        logits: For each token the logits after it, in float64.
        bound: How far rounding may move one of them in the engine's dtype.
        narrow: The same logits in that dtype, where it is so narrow that the likeliest token is often another.
    """

    logits: LogitRows
    bound: float
    narrow: LogitRows | None = None


@runtime_checkable
class Referee(Protocol):
    """Whatever can say which logits follow a sequence of tokens."""

    @property
    def name(self) -> str:
        """How reports name it."""
        ...

    def judge(self, token_ids: Sequence[int]) -> Judgement:
        """Gives the logits after every token of one sequence, and how far rounding may move them."""
        ...


class ModelReferee:
    """Transformers' model in the engine's dtype, and beside it the same in float64, or the witness of this harness.

    The distance between the two is what rounding does to a correct implementation; a multiple of it is the bound.

    Args:
        folder: The checkpoint folder, of any family that transformers runs.
        dtype: What the engine computes in.
        witness: Whether the float64 side is the NumPy witness, which shares no code with transformers; Llama only.

    Raises:
        ReferenceUnavailable: The folder cannot be loaded.
    """

    def __init__(self, folder: Path, dtype: str = "float32", *, witness: bool = False) -> None:
        self.name = "witness" if witness else "transformers"
        self._dtype = dtype
        self._narrow = Reference.open(folder, dtype=dtype, attn_implementation="eager")
        self._wide = Witness.open(folder) if witness else WideReference(folder)
        self._judgement_by_tokens: dict[tuple[int, ...], Judgement] = {}

    def judge(self, token_ids: Sequence[int]) -> Judgement:
        """See `Referee.judge`; what was asked before is remembered.

        Raises:
            ScenarioError: There is no token.
        """
        key = tuple(token_ids)
        if key not in self._judgement_by_tokens:
            wide, narrow = _as_float64(self._wide.logits(key)), as_rows(self._narrow.logits(key))
            error = float(np.abs(narrow - wide).max())
            smallest = SMALLEST_NOISE_IN_EPS * _EPS_BY_DTYPE[self._dtype] * float(np.abs(wide).max())
            bound = NOISE_FACTOR * max(error, smallest)
            self._judgement_by_tokens[key] = Judgement(wide, bound, None if self._dtype == "float32" else narrow)
        return self._judgement_by_tokens[key]


def _as_float64(logits: object) -> LogitRows:
    return logits if isinstance(logits, np.ndarray) else as_rows(logits)  # type: ignore[arg-type]

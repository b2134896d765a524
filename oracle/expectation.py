"""What reference and witness say of every activation of a request, and how far rounding may move it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oracle.passes import INPUT_IDS, POSITION_IDS, STEP_LOGITS
from oracle.reference import Reference
from oracle.tolerances import FLOAT64_BOUND, NOISE_FACTOR, SMALLEST_NOISE_IN_EPS
from oracle.witness import Witness
from refinfer.numerics import dtype_by_name

RowsByName = Mapping[str, np.ndarray]
"""Activations in float64, first axis positions of a request, by the names of `oracle.passes.names_in_pass`."""

TokensByRequest = tuple[tuple[int, ...], ...]
"""The token ids of each request."""


@dataclass(frozen=True)
class Expectation:
    """What the oracles say of all tokens of one request.

    Attributes:
        reference: The reference's activations, in the order of execution.
        witness: The witness's, likewise.
        noise_by_name: For each name, how far from the witness rounding may move a value.
        is_judged_by_witness: Whether the subject is held against the witness: in float64 the reference
            is no finer than in float32.
    """

    reference: RowsByName
    witness: RowsByName
    noise_by_name: Mapping[str, float]
    is_judged_by_witness: bool

    @property
    def judge(self) -> RowsByName:
        """The side that the subject is held against."""
        return self.witness if self.is_judged_by_witness else self.reference


class Oracles:
    """Reference and witness of one checkpoint.

    Args:
        folder: The checkpoint.
        dtype: Dtype the subject runs in, and the reference with it.

    Raises:
        ReferenceUnavailable: One of the two cannot read the checkpoint.
    """

    def __init__(self, folder: Path, dtype: str) -> None:
        self._dtype = dtype_by_name(dtype)
        self._reference = Reference.open(folder, dtype=dtype)
        self._witness = Witness.open(folder)
        self._last: tuple[TokensByRequest, list[Expectation]] = ((), [])

    def expect(self, token_ids_by_request: Sequence[Sequence[int]]) -> list[Expectation]:
        """Asks both about each of several requests.

        Being asked the same again right away costs nothing, so that a scenario can be run in several ways.

        Raises:
            ScenarioError: A request has no token, or an id lies outside the vocabulary.
        """
        asked = tuple(tuple(token_ids) for token_ids in token_ids_by_request)
        if self._last[0] != asked:
            self._last = ((), [])  # lets go of the old ones before there are new ones
            self._last = (asked, [self._expect_one(token_ids) for token_ids in asked])
        return self._last[1]

    def _expect_one(self, token_ids: Sequence[int]) -> Expectation:
        witness = _all_names(self._witness.activations(token_ids), token_ids)
        reference = _all_names(self._reference.activations(token_ids), token_ids)
        noise_by_name = {name: self._noise(reference[name], rows) for name, rows in witness.items()}
        for name in (INPUT_IDS, POSITION_IDS):  # nothing rounds them
            noise_by_name[name] = 0.0
        return Expectation(reference, witness, noise_by_name, is_judged_by_witness=self._dtype == torch.float64)

    def _noise(self, reference: np.ndarray, witness: np.ndarray) -> float:
        """Gives the third rung of `oracle.tolerances` for one activation, and the second in float64."""
        size = float(np.abs(witness).max())
        if self._dtype == torch.float64:
            return FLOAT64_BOUND * max(size, 1.0)
        rounding = SMALLEST_NOISE_IN_EPS * torch.finfo(self._dtype).eps * size
        return NOISE_FACTOR * max(float(np.abs(reference - witness).max()), rounding)


def widened(activation: Tensor | np.ndarray) -> np.ndarray:
    """Gives an activation as a float64 array, without changing a value."""
    if isinstance(activation, Tensor):
        return activation.to(torch.float64).numpy()
    return activation.astype(np.float64, copy=False)


def _all_names(activations: Mapping[str, Tensor | np.ndarray], token_ids: Sequence[int]) -> dict[str, np.ndarray]:
    """Adds what a pass is told, and the logits that it hands out."""
    rows_by_name = {name: widened(activation) for name, activation in activations.items()}
    told = {INPUT_IDS: widened(np.array(token_ids)), POSITION_IDS: widened(np.arange(len(token_ids)))}
    return {**told, **rows_by_name, STEP_LOGITS: rows_by_name["lm_head"]}

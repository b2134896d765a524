"""Names the first module at which subject and reference part, in execution order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oracle.errors import ActivationMismatch

Activation = Tensor | np.ndarray
"""What a module gives, first axis positions; the witness has arrays."""


@dataclass(frozen=True)
class Divergence:
    """The first activation that is further off than its bound.

    Attributes:
        name: The module path.
        position: The first position of the sequence at which it differs.
        largest: The largest difference, over all positions.
        bound: What was permitted.
        last_agreeing: The module before it that still agreed, or None.
    """

    name: str
    position: int
    largest: float
    bound: float
    last_agreeing: str | None

    def __str__(self) -> str:
        """Says it in one sentence."""
        before = "it is the first module" if self.last_agreeing is None else f"{self.last_agreeing} still agrees"
        return (
            f"first divergence at {self.name}, position {self.position}: "
            f"{self.largest:.3g} off where {self.bound:.3g} is permitted; {before}"
        )


def first_divergence(
    subject: Mapping[str, Activation],
    reference: Mapping[str, Activation],
    order: Sequence[str],
    relative_bound: float,
) -> Divergence | None:
    """Walks activations in execution order and gives the first that differ beyond the bound.

    Args:
        subject: The subject's activations by module path, first axis positions.
        reference: The reference's, likewise.
        order: Module paths in the order of execution.
        relative_bound: Largest permitted difference, as a share of the activation's largest value.

    Raises:
        ActivationMismatch: The two sides hold activations of different shapes under one name, or share none.
    """
    shared = [name for name in order if name in subject and name in reference]
    if not shared:
        message = "subject and reference share no activation, so there is nothing to compare"
        raise ActivationMismatch(message)
    last_agreeing = None
    for name in shared:
        own, theirs = _widened(subject[name]), _widened(reference[name])
        if own.shape != theirs.shape:
            message = f"{name} has shape {own.shape} on the subject's side and {theirs.shape} on the reference's"
            raise ActivationMismatch(message, name=name)
        own, theirs = own.reshape(len(own), -1), theirs.reshape(len(theirs), -1)
        is_finite = np.isfinite(own).all(axis=1) & np.isfinite(theirs).all(axis=1)
        with np.errstate(invalid="ignore"):  # infinity less infinity; such a position is off whatever comes out
            difference = np.abs(own - theirs).max(axis=1)
        bound = relative_bound * float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0))
        is_off = ~is_finite | (difference > bound)
        if is_off.any():
            return Divergence(name, int(is_off.argmax()), float(difference.max()), bound, last_agreeing)
        last_agreeing = name
    return None


def _widened(activation: Activation) -> np.ndarray:
    if isinstance(activation, Tensor):
        return activation.detach().to(torch.float64).numpy()
    return np.asarray(activation, dtype=np.float64)

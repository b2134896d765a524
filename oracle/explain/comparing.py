"""How is what one row of a run computed held to its sample alone? By position, and only where the tokens agree."""

import torch
from torch import Tensor

from oracle.explain.lone_pass import LonePass
from oracle.explain.recording import RowRecord

KEYS, VALUES = "rope[1]", "v_proj"
"""The last part of the module paths that give keys and values."""

_SHOWN_BY_LAST = {
    "rope[0]": "rotated_queries",
    "rope[1]": "rotated_keys",
    "rotary_emb[0]": "rotary_emb, cosines",
    "rotary_emb[1]": "rotary_emb, sines",
    "core": "per_head_output",
    "down_proj.input": "silu(gate) · up",
}


def shown_name(name: str) -> str:
    """Gives the name under which readers know what was recorded."""
    for last, shown in _SHOWN_BY_LAST.items():
        if name.endswith(f".{last}"):
            return f"{name.removesuffix(last)}{shown}"
    return name


def layer_of(name: str) -> int | None:
    """Gives the layer that a module path stands in."""
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else None


def num_shared(own: tuple[int, ...], others: tuple[int, ...]) -> int:
    """Gives how many first tokens two samples share."""
    pairs = zip(own, others, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(own), len(others)))


def num_comparable(row: RowRecord, lone: LonePass) -> int:
    """Gives how many of the tokens that a row runs are the sample's own ones, with the same tokens before them."""
    return max(0, num_shared(row.token_ids, lone.token_ids) - row.start)


def differences(own: Tensor, theirs: Tensor) -> Tensor:
    """Gives by how much each row is off, in float64."""
    if not len(own):
        return torch.zeros(0, dtype=torch.float64)
    one, other = (side.reshape(len(own), -1).to(torch.float64) for side in (own, theirs))
    return (one - other).abs().amax(dim=1)


def first_off(difference: Tensor, bound: float) -> tuple[int | None, float]:
    """Gives the first row that is further off than permitted, and the largest difference of all.

    Args:
        difference: Of each row, as `differences` gives it.
        bound: What is permitted.
    """
    if not len(difference):
        return None, 0.0
    is_off = ~(difference <= bound)
    if not bool(is_off.any()):
        return None, float(difference.max())
    finite = difference[difference.isfinite()]
    is_broken = bool((~difference.isfinite()).any())
    return int(is_off.int().argmax()), float("nan") if is_broken else float(finite.max())

"""Runs a model of transformers in float64 throughout, also where its code says float32."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from oracle.reference import Reference
from refinfer.shapes import Logits


class KeepFloat64(TorchFunctionMode):
    """Takes every conversion to float32 as one to float64.

    Norms, softmax and rotary angles of transformers' models convert to float32 by name, so that a model that was
    loaded in float64 errs about as much as one in float32.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls a function of torch, with float64 where float32 was asked for."""
        if func is torch.Tensor.float:
            return args[0].double()
        kwargs = {name: _widened(value) for name, value in (kwargs or {}).items()}
        return func(*map(_widened, args), **kwargs)


class WideReference:
    """A reference in true float64; it referees which of two tokens is right, and how much rounding can do.

    Args:
        folder: The checkpoint folder.
    """

    def __init__(self, folder: Path) -> None:
        with KeepFloat64():
            self._reference = Reference.open(folder, dtype="float64", attn_implementation="eager")
        # Grouped products of experts take no float64.
        self._reference.model.set_experts_implementation("eager")

    def logits(self, token_ids: Sequence[int]) -> Logits:
        """Computes the logits after every token of one request, in one pass.

        Raises:
            ScenarioError: There is no token.
        """
        with KeepFloat64():
            return self._reference.logits(token_ids)


def _widened(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value

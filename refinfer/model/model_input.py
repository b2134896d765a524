"""What the model is given in one step: the tokens of all rows, packed, and which of their logits are wanted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from refinfer.interfaces import AttentionView
from refinfer.model.llama import Llama
from refinfer.shapes import PositionIds, TokenIds

RowLogits = np.ndarray
"""Logits of the last tokens that one row runs, (tokens, vocab): in float32, or float64 where the model has it."""


@dataclass(frozen=True)
class ModelInput:
    """Packed tokens of several rows.

    Attributes:
        input_ids: Token ids of everything that runs.
        position_ids: Each token's place in its own request.
        num_tokens: How many of them belong to each row.
        num_logits: Of how many of each row's tokens, the last ones, logits are wanted.
    """

    input_ids: TokenIds
    position_ids: PositionIds
    num_tokens: tuple[int, ...]
    num_logits: tuple[int, ...]

    @classmethod
    def pack(
        cls, token_ids: Sequence[Sequence[int]], first_positions: Sequence[int], num_logits: Sequence[int]
    ) -> "ModelInput":
        """Packs the tokens of rows.

        Args:
            token_ids: For each row, the tokens that run.
            first_positions: For each row, the place of the first of them in its request.
            num_logits: For each row, of how many of the last of them logits are wanted.
        """
        positions = [
            position
            for own, first in zip(token_ids, first_positions, strict=True)
            for position in range(first, first + len(own))
        ]
        return cls(
            torch.tensor([token_id for own in token_ids for token_id in own]),
            torch.tensor(positions),
            tuple(len(own) for own in token_ids),
            tuple(num_logits),
        )

    def run(self, model: Llama, view: AttentionView) -> list[RowLogits]:
        """Runs the tokens through a model; gives the logits that are wanted, row by row."""
        wanted: list[int] = []
        end = 0
        for num_tokens, num_logits in zip(self.num_tokens, self.num_logits, strict=True):
            end += num_tokens
            wanted.extend(range(end - num_logits, end))
        logits = model.forward(self.input_ids, self.position_ids, view, wanted)
        is_narrow = logits.dtype in (torch.bfloat16, torch.float16)  # NumPy does not have the one, and float32 has both
        rows = (logits.float() if is_narrow else logits).numpy()
        return np.split(rows, np.cumsum(self.num_logits)[:-1])

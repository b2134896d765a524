"""A runner without a model: what it keeps of a token is a hash chained over all tokens before it, checked when read."""

from collections.abc import Sequence

import numpy as np

from oracle.errors import InvariantViolation
from oracle.slot_store import SlotStore
from refinfer.model.model_input import RowLogits
from refinfer.scheduler import BlockOperation, RequestState, ScheduledRow
from refinfer.scheduler.request import held_blocks

VOCAB_SIZE = 8
_MODULUS = 2**61 - 1
_FACTOR = 6364136223846793005
_BITS_PER_LOGIT = 4


def chain(token_ids: Sequence[int]) -> list[int]:
    """Gives, for each token, a hash of it and of all before it, in order."""
    hashes, value = [], 1
    for token_id in token_ids:
        value = (value * _FACTOR + token_id + 1) % _MODULUS
        hashes.append(value)
    return hashes


def chain_logits(hashes: Sequence[int]) -> RowLogits:
    """Gives the logits after each of some tokens, (tokens, vocab); ties are common."""
    rows = [
        [(value >> _BITS_PER_LOGIT * token_id + 8) % 2**_BITS_PER_LOGIT for token_id in range(VOCAB_SIZE)]
        for value in hashes
    ]
    return np.array(rows, dtype=np.float32).reshape(len(rows), VOCAB_SIZE)


class ChainRunner:
    """Runs steps without a model, in microseconds; the next token depends on every token before it.

    With blocks, each token's slot holds its hash. Every step reads the slots of all computed tokens of its rows,
    and refuses one that holds anything else, so that keys and values in the wrong place cannot go unseen.

    Args:
        num_blocks: Blocks of the pool; 0 where nothing is kept in blocks.
        block_size: Token places of a block.
    """

    def __init__(self, num_blocks: int = 0, block_size: int = 1) -> None:
        self._store = SlotStore[int](num_blocks, block_size)
        self._has_blocks = num_blocks > 0

    @property
    def num_reserved_slots(self) -> int:
        """None: the scheduler counts its blocks."""
        return 0

    @property
    def num_swapped_requests(self) -> int:
        """Requests that have blocks in host memory."""
        return len(self._store.swapped_by_request)

    def reset(self) -> None:
        """Forget what lies in every block and in host memory."""
        self._store.reset()

    def prepare(self, operations: Sequence[BlockOperation]) -> None:
        """Copies, swaps and forgets blocks, in the order decided."""
        self._store.carry_out(operations)

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs the next tokens of each row; gives the logits that each row wants.

        Raises:
            InvariantViolation: A slot does not hold what the request computed.
        """
        hashes_by_row = []
        for row in rows:
            end = row.state.num_computed_tokens + row.num_scheduled_tokens
            hashes = chain([*row.state.token_ids[:end], *row.draft_token_ids])
            if self._has_blocks:
                self._read(row.state, hashes)
                self._write(row.state, hashes)
            hashes_by_row.append(hashes)
        return [
            chain_logits(hashes[len(hashes) - row.num_logits :])
            for row, hashes in zip(rows, hashes_by_row, strict=True)
        ]

    def _read(self, state: RequestState, hashes: Sequence[int]) -> None:
        slots = held_blocks(state).table.slots(0, state.num_computed_tokens)
        for position, slot in enumerate(slots):
            if self._store.values[slot] != hashes[position]:
                message = (
                    f"request {state.request.request_id}, sample {state.sample_index}, reads position {position} "
                    f"in slot {slot}, which holds {self._store.values[slot]} instead of {hashes[position]}"
                )
                raise InvariantViolation(message, position=position, slot=slot)

    def _write(self, state: RequestState, hashes: Sequence[int]) -> None:
        start = state.num_computed_tokens
        for position, slot in enumerate(held_blocks(state).table.slots(start, len(hashes)), start):
            self._store.values[slot] = hashes[position]

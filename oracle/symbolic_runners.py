"""Runners that execute steps on the symbolic model: over blocks, over one store for each request, and over none."""

from collections.abc import Sequence

from oracle.errors import InvariantViolation
from oracle.slot_store import SlotStore
from oracle.symbolic import PrefixHash, logits_of
from refinfer.model.model_input import RowLogits
from refinfer.scheduler import BlockOperation, RequestState, RequestStatus, ScheduledRow
from refinfer.scheduler.request import held_blocks

Value = bytes | None
"""What a slot holds; None where nobody has written, or nobody may read any more."""

WrittenToken = tuple[RequestState, int, bytes]
"""Of whom a token ran, at which position, and what was kept of it."""


class _SymbolicRunner:
    """What the symbolic runners share: the step, and the log of all that was written.

    Attributes:
        written: Every token that ran, in order.
    """

    def __init__(self) -> None:
        self.written: list[WrittenToken] = []

    @property
    def num_reserved_slots(self) -> int:
        """None that would be worth counting."""
        return 0

    def reset(self) -> None:
        """Do nothing: nothing is kept."""

    def prepare(self, operations: Sequence[BlockOperation]) -> None:
        """Does nothing: without blocks no operation on them is decided."""

    def _run(self, row: ScheduledRow, kept: Sequence[Value]) -> tuple[list[bytes], RowLogits]:
        """Runs the next tokens of a row after what is kept of those before."""
        state, start = row.state, row.state.num_computed_tokens
        if len(kept) != start or None in kept:
            missing = kept.index(None) if None in kept else len(kept)
            message = (
                f"request {state.request.request_id}, sample {state.sample_index}: position {missing} is read for "
                f"position {start}, and nobody has written it"
            )
            raise InvariantViolation(message, position=missing)
        prefix = PrefixHash(kept, state.request.cache_salt)  # type: ignore[arg-type]  # none of them is None
        values = []
        num_known = row.num_scheduled_tokens - len(row.draft_token_ids)
        for position, token_id in enumerate(row.token_ids, start):
            value = prefix.push(token_id, position)
            values.append(value)
            if position < start + num_known:  # of a guessed token the request may know nothing, ever
                self.written.append((state, position, value))
        return values, logits_of(values[len(values) - row.num_logits :])


class SymbolicRecomputeRunner(_SymbolicRunner):
    """Keeps nothing: each step runs every row from its first token."""

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs all tokens of every row."""
        logits = []
        for row in rows:
            prefix = PrefixHash(salt=row.state.request.cache_salt)
            values = [prefix.push(token_id, place) for place, token_id in enumerate(row.state.token_ids)]
            self.written.extend((row.state, place, value) for place, value in enumerate(values))
            logits.append(logits_of(values[len(values) - row.num_logits :]))
        return logits


class SymbolicContinuousRunner(_SymbolicRunner):
    """Keeps a store for each request that runs, and drops it when the request has ended or lost its place."""

    def __init__(self) -> None:
        super().__init__()
        self._values_by_request: dict[RequestState, list[Value]] = {}

    def reset(self) -> None:
        """Drop every store."""
        self._values_by_request = {}

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs the next tokens of each row."""
        self._values_by_request = {
            state: values
            for state, values in self._values_by_request.items()
            if state.status is RequestStatus.RUNNING and state.num_computed_tokens
        }
        logits = []
        for row in rows:
            if row.state.is_finished:  # it only keeps its place in a static batch
                logits.append(logits_of([]))
                continue
            kept = self._values_by_request.setdefault(row.state, [])
            del kept[row.state.num_computed_tokens :]
            values, own = self._run(row, kept)
            kept.extend(values)
            logits.append(own)
        return logits


class SymbolicPagedRunner(_SymbolicRunner):
    """Keeps what all requests have in blocks.

    Args:
        num_blocks: Blocks of the pool.
        block_size: Token places of a block.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__()
        self._store = SlotStore[bytes](num_blocks, block_size)

    @property
    def num_swapped_requests(self) -> int:
        """Requests that have something in host memory."""
        return len(self._store.swapped_by_request)

    def reset(self) -> None:
        """Forget what lies in every block and in host memory."""
        self._store.reset()

    def values_in(self, block_ids: Sequence[int]) -> list[Value]:
        """Gives what lies in some blocks, in order."""
        return self._store.values_in(block_ids)

    def prepare(self, operations: Sequence[BlockOperation]) -> None:
        """Copies, swaps and forgets blocks, in the order decided."""
        self._store.carry_out(operations)

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs the next tokens of each row, all of which are forgotten before the first one runs."""
        stored = self._store.values
        slots_by_row = []
        for row in rows:
            start = row.state.num_computed_tokens
            slots = held_blocks(row.state).table.slots(0, start + row.num_scheduled_tokens)
            for slot in slots[start:]:
                stored[slot] = None
            slots_by_row.append((slots, start))
        logits = []
        for row, (slots, start) in zip(rows, slots_by_row, strict=True):
            values, own = self._run(row, [stored[slot] for slot in slots[:start]])
            for slot, value in zip(slots[start:], values, strict=True):
                stored[slot] = value
            logits.append(own)
        return logits

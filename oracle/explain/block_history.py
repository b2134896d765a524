"""What should each slot of the pool hold, and how did each request come to its blocks? Followed without a tensor."""

from collections import Counter
from collections.abc import Sequence

from oracle.explain.recording import Written, key_of
from oracle.slot_store import SlotStore
from refinfer.scheduler import BlockOperation, BlockSpace, CopyBlock, ForgetBlocks, RequestState, ScheduledRow, SwapIn
from refinfer.scheduler.request import held_blocks

RESERVED = "reserved"
COPIED = "copy on write"
SWAPPED_IN = "swap in"
HIT = "prefix hit"
FORKED = "fork"
FOUND_AND_COPIED = "prefix hit, then copy on write"


class BlockHistory:
    """Follows what the scheduler decided, as if every slot held the name of what was written to it.

    Args:
        space: The blocks.

    Attributes:
        lost: What could not be followed, in words.
        forgotten: By block, the step before which it was last given up.
    """

    def __init__(self, space: BlockSpace) -> None:
        self._space = space
        self._store = SlotStore[Written](space.pool.num_blocks, space.block_size)
        self._tables: dict[RequestState, tuple[list[int], list[str]]] = {}
        self._targets: set[int] = set()
        self._swapped: set[RequestState] = set()
        self.lost: list[str] = []
        self.forgotten: dict[int, int] = {}

    @property
    def block_size(self) -> int:
        """Token places of a block."""
        return self._space.block_size

    def carry_out(self, operations: Sequence[BlockOperation], step: int) -> None:
        """Moves names as the cache is to move keys and values."""
        for operation in operations:
            try:
                self._store.carry_out([operation])
            except (KeyError, IndexError, ValueError) as error:
                self.lost.append(f"{type(operation).__name__} cannot be done: {type(error).__name__} {error}")
            if isinstance(operation, CopyBlock):
                self._targets.add(operation.target)
            elif isinstance(operation, SwapIn):
                self._swapped.add(operation.state)
            elif isinstance(operation, ForgetBlocks):
                self.forgotten.update(dict.fromkeys(operation.block_ids, step))

    def origins(self, row: ScheduledRow) -> tuple[str, ...]:
        """Tells of each block of a row's table how the request came to it."""
        state = row.state
        block_ids = list(held_blocks(state).table.block_ids)
        old_ids, old_origins = self._tables.get(state, ([], []))
        size = self._space.block_size
        origins = []
        for index, block_id in enumerate(block_ids):
            if index < len(old_ids) and old_ids[index] == block_id and state not in self._swapped:
                origins.append(old_origins[index])
            elif block_id in self._targets:
                origins.append(COPIED if state in self._tables else FOUND_AND_COPIED)
            elif state in self._swapped:
                origins.append(SWAPPED_IN)
            elif index * size < state.num_computed_tokens and index >= len(old_ids):
                is_fork = state.first_sample is not None and not state.num_output_tokens
                origins.append(FORKED if is_fork else HIT)
            else:
                origins.append(RESERVED)
        self._tables[state] = (block_ids, origins)
        return tuple(origins)

    def end_step(self) -> None:
        """Forgets what was special about this step."""
        self._targets.clear()
        self._swapped.clear()

    def forget(self, state: RequestState) -> None:
        """Forgets the table of a request that lost it."""
        self._tables.pop(state, None)

    def read(self, row: ScheduledRow) -> list[Written | None]:
        """Gives what a row's block table leads to, for all tokens before those that run."""
        slots = self._slots(row, 0, row.state.num_computed_tokens)
        return [None if slot is None else self._store.values[slot] for slot in slots]

    def held_in(self, block_id: int) -> list[Written | None]:
        """Gives what each slot of a block should hold; None where nobody wrote, or nobody may read any more."""
        return self._store.values_in([block_id])

    def origin_in_table(self, state: RequestState, block_id: int) -> str | None:
        """Tells how a request came to one of its blocks; None where it has not run with it."""
        return dict(zip(*self._tables.get(state, ([], [])), strict=True)).get(block_id)

    def write(self, row: ScheduledRow, step: int) -> None:
        """Names what a row writes."""
        state, start = row.state, row.state.num_computed_tokens
        known = tuple(state.token_ids[:start]) + tuple(row.token_ids)
        request, sample = key_of(state)
        for position, slot in enumerate(self._slots(row, start, len(known)), start):
            if slot is not None:
                self._store.values[slot] = Written(
                    step, request, sample, known[: position + 1], state.request.cache_salt
                )

    def collisions(self, rows: Sequence[ScheduledRow]) -> list[str]:
        """Tells which blocks of a step are written by one row and stand in another row's table as well."""
        holders = Counter(block_id for row in rows for block_id in set(held_blocks(row.state).table.block_ids))
        return [
            f"request {row.state.request.request_id} would write to block {block_id}, which another row holds too"
            for row in rows
            for block_id in held_blocks(row.state).table.block_ids[row.state.num_computed_tokens // self.block_size :]
            if holders[block_id] > 1
        ]

    def misfound(self, token_ids: Sequence[int], salt: str | None) -> str | None:
        """Tells what is found by some tokens and holds something else; None where all that is found is right."""
        if self._space.prefix is None:
            return None
        block_ids, num_tokens = self._space.prefix.match(list(token_ids), salt, len(token_ids))
        size = self._space.block_size
        for position in range(num_tokens):
            own = self._store.values[block_ids[position // size] * size + position % size]
            if own is None or own.prefix != tuple(token_ids[: position + 1]) or own.salt != salt:
                held = "nothing" if own is None else f"what request {own.request} wrote in step {own.step}"
                return f"block {block_ids[position // size]} is found for position {position}, and holds {held} there"
        return None

    def _slots(self, row: ScheduledRow, start: int, stop: int) -> list[int | None]:
        """Gives the slots of some positions; None where the table is too short."""
        block_ids, size = held_blocks(row.state).table.block_ids, self._space.block_size
        return [
            block_ids[position // size] * size + position % size if position // size < len(block_ids) else None
            for position in range(start, stop)
        ]

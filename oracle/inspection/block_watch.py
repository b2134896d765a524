"""What became of each block, step by step: who holds it, what lies in it, and what happened to it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oracle.explain.block_history import FORKED, HIT, SWAPPED_IN, BlockHistory
from oracle.explain.recording import Written, key_of, name_of
from refinfer.engine.answer import Answer, StepRow
from refinfer.engine.core import EngineCore
from refinfer.model.model_input import RowLogits
from refinfer.scheduler import CopyBlock, RequestState, ScheduledRow, SchedulerOutput, SwapOut

Key = tuple[int, int]
"""Request and sample."""

_WORDS_BY_ORIGIN = {
    HIT: "found by its tokens, and shared with",
    FORKED: "shared with another sample,",
    SWAPPED_IN: "filled from host memory for",
}


def sample_name(key: Key) -> str:
    """Names a sample as "request/sample"."""
    return f"{key[0]}/{key[1]}"


class BlockState(NamedTuple):
    """One block at one moment.

    Attributes:
        holders: In whose block tables it stands.
        ref_count: References to it, the prefix map's pin included.
        published: The tokens under which the prefix map finds it, behind those of its parents; None if it does not.
        slots: What each of its slots should hold.
    """

    holders: tuple[Key, ...]
    ref_count: int
    published: tuple[int, ...] | None
    slots: tuple[Written | None, ...]

    @property
    def is_free(self) -> bool:
        """Whether nobody has a reference to it."""
        return not self.ref_count

    @property
    def is_kept(self) -> bool:
        """Whether only the prefix map holds it."""
        return not self.holders and self.published is not None


class Moment(NamedTuple):
    """All blocks at one moment.

    Attributes:
        blocks: By their ids.
        host: By sample, how many blocks it has in host memory.
    """

    blocks: tuple[BlockState, ...]
    host: dict[Key, int]


class BlockEvent(NamedTuple):
    """Something that happened to a block.

    Attributes:
        step: The step.
        block_id: The block.
        words: What.
    """

    step: int
    block_id: int
    words: str


class BlockWatch:
    """Stands before a core that is watched already, and looks at its pool around every step.

    Args:
        core: The core, before its first request.
        history: What the pool should hold, as it is followed by whoever watches the core.

    Attributes:
        block_size: Token places of a block.
        moments: Of each step, the blocks when its rows had run, before any was given back.
        events: What happened, in order.
    """

    def __init__(self, core: EngineCore, history: BlockHistory) -> None:
        self.block_size = history.block_size
        self.moments: list[Moment] = []
        self.events: list[BlockEvent] = []
        self._core = core
        self._history = history
        self._states: list[RequestState] = []
        self._output = SchedulerOutput(())
        self._rows: Sequence[ScheduledRow] = ()
        self._number = -1
        self._decided: Moment | None = None
        self._ran: Moment | None = None
        self._last = self._moment()
        self._add, self._step, self._schedule = core.add, core.step, core.scheduler.schedule
        self._execute: Callable[[Sequence[ScheduledRow]], list[RowLogits]] = core.runner.execute
        core.add, core.step = self._see_add, self._see_step  # type: ignore[method-assign]
        core.scheduler.schedule = self._see_schedule  # type: ignore[method-assign]
        core.runner.execute = self._see_execute  # type: ignore[method-assign]

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool."""
        return len(self._last.blocks)

    def _see_add(self, state: RequestState) -> Answer:
        self._states.append(state)
        return self._add(state)

    def _see_step(self) -> list[StepRow]:
        self._number += 1
        before = self._moment()
        self._tell_changes(self._last, before)
        self._decided = self._ran = None
        self._output, self._rows = SchedulerOutput(()), ()
        try:
            return self._step()
        finally:
            after = self._moment()
            ran = self._ran or after
            self.moments.append(ran)
            self._tell_decisions(before, self._decided or before)
            self._tell_writes()
            self._tell_changes(ran, after)
            self._last = after

    def _see_schedule(self) -> SchedulerOutput:
        self._output = self._schedule()
        self._decided = self._moment()
        return self._output

    def _see_execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        self._rows = rows
        try:
            return self._execute(rows)
        finally:
            self._ran = self._moment()

    def _moment(self) -> Moment:
        space = self._core.scheduler.blocks
        holders: dict[int, list[Key]] = {}
        host: dict[Key, int] = {}
        for state in self._states:
            if state.blocks is None:
                continue
            for block_id in state.blocks.table.block_ids:
                holders.setdefault(block_id, []).append(key_of(state))
            if state.blocks.num_swapped_blocks:
                host[key_of(state)] = state.blocks.num_swapped_blocks
        if space is None:
            return Moment((), host)
        published = {} if space.prefix is None else space.prefix.token_ids_by_block
        return Moment(
            tuple(
                BlockState(
                    tuple(holders.get(block_id, ())),
                    space.pool.ref_count(block_id),
                    published.get(block_id),
                    tuple(self._history.held_in(block_id)),
                )
                for block_id in range(space.pool.num_blocks)
            ),
            host,
        )

    def _state(self, key: Key) -> RequestState:
        return next(state for state in self._states if key_of(state) == key)

    def _tell(self, block_id: int, words: str) -> None:
        self.events.append(BlockEvent(self._number, block_id, words))

    def _tell_decisions(self, before: Moment, decided: Moment) -> None:
        """Tells what the scheduler did: took back, copied, evicted, shared and handed out, in this order."""
        operations = self._output.block_operations
        for swap in (each for each in operations if isinstance(each, SwapOut)):
            for block_id in swap.block_ids:
                self._tell(block_id, f"copied to host memory for {name_of(swap.state)}")
        copied = [each for each in operations if isinstance(each, CopyBlock)]
        for block_id, (old, new) in enumerate(zip(before.blocks, decided.blocks, strict=True)):
            self._tell_losses(block_id, old, new)
            for target in (each.target for each in copied if each.source == block_id):
                self._tell(block_id, f"copied into block {target}, since it was shared and is to be written")
            if old.published is not None and new.published is None:
                self._tell(block_id, "evicted from the prefix map")
            for key in _without(new.holders, old.holders):
                self._tell(block_id, f"{self._how(key, block_id, copied)} {sample_name(key)}")

    def _tell_losses(self, block_id: int, old: BlockState, new: BlockState) -> None:
        how_by_key = {key_of(state): how for state, how in self._output.preempted}
        for key in _without(old.holders, new.holders):
            why = f"preempted, {how_by_key[key]}" if key in how_by_key else "written elsewhere from now on"
            self._tell(block_id, f"taken from {sample_name(key)}: {why}{_left(new)}")

    def _how(self, key: Key, block_id: int, copied: Sequence[CopyBlock]) -> str:
        origin = self._history.origin_in_table(self._state(key), block_id)
        sources = [each.source for each in copied if each.target == block_id]
        if sources:
            return f"filled from block {sources[-1]} for"
        return _WORDS_BY_ORIGIN.get(origin or "", "allocated to")

    def _tell_writes(self) -> None:
        for block_id, state in enumerate(self.moments[-1].blocks):
            written = [own for own in state.slots if own is not None and own.step == self._number]
            by_key: dict[Key, list[Written]] = {}
            for own in written:
                by_key.setdefault((own.request, own.sample), []).append(own)
            for key, tokens in by_key.items():
                first, last = tokens[0].position, tokens[-1].position
                where = f"position {first}" if first == last else f"positions {first}..{last}"
                ids = " ".join(str(own.prefix[-1]) for own in tokens)
                self._tell(block_id, f"written by {sample_name(key)}, {where}: {ids}")

    def _tell_changes(self, before: Moment, after: Moment) -> None:
        """Tells what was published and given back between two moments."""
        for block_id, (old, new) in enumerate(zip(before.blocks, after.blocks, strict=True)):
            if old.published is None and new.published is not None:
                self._tell(block_id, f"published under {' '.join(map(str, new.published))}")
            for key in _without(old.holders, new.holders):
                state = self._state(key)
                why = f"ended ({state.finish_reason})" if state.is_finished else "guesses did not stay"
                self._tell(block_id, f"given back by {sample_name(key)}: {why}{_left(new)}")


def _without(some: Sequence[Key], others: Sequence[Key]) -> list[Key]:
    """Gives who stands more often among some than among others."""
    return list((Counter(some) - Counter(others)).elements())


def _left(state: BlockState) -> str:
    return "; free" if state.is_free else "; the prefix map keeps it" if state.is_kept else ""

"""Watches one engine step by step: what holds of its state, of what is decided, and of what came before."""

from oracle.errors import InvariantViolation
from oracle.invariants import check_core, check_output
from oracle.prefix_book import PrefixBook
from refinfer.cache.block_table import BlockTable
from refinfer.engine.core import EngineCore
from refinfer.scheduler import RequestState, SchedulerOutput
from refinfer.scheduler.request import held_blocks


class StateWatch:
    """Stands before the scheduler of a core, whose policy must be the shipped one, and its prefix map.

    Args:
        core: The engine, without a request.
        max_num_seqs: Most requests in one step.
        token_budget: Most tokens in one step.
        max_model_len: Longest request in tokens, prompt and output together.
    """

    def __init__(self, core: EngineCore, *, max_num_seqs: int, token_budget: int, max_model_len: int) -> None:
        self._core = core
        self._scheduler = core.scheduler
        self._max_num_seqs, self._token_budget, self._max_model_len = max_num_seqs, token_budget, max_model_len
        self._num_cached_by_state: dict[RequestState, int] = {}
        self._schedule, self._admit = self._scheduler.schedule, self._scheduler.admit
        # No switch for being watched in `refinfer`, on purpose: the methods of this one scheduler are replaced.
        self._scheduler.schedule = self.schedule  # type: ignore[method-assign]
        self._scheduler.admit = self.admit  # type: ignore[method-assign]
        space = self._scheduler.blocks
        if space is not None and space.prefix is not None:
            PrefixBook(space, space.prefix)

    def schedule(self) -> SchedulerOutput:
        """Decides who runs in the next step.

        Raises:
            InvariantViolation: Something does not hold of the state before it, or of what was decided.
        """
        check_core(self._core, max_num_seqs=self._max_num_seqs)
        output = self._schedule()
        check_output(output, self._scheduler, self._max_num_seqs, self._token_budget, self._max_model_len)
        for state in self._scheduler.running:
            self._check_num_cached(state)
        return output

    def admit(self) -> bool:
        """Lets the first of those that wait run.

        Raises:
            InvariantViolation: It came in, and the blocks that are free or idle do not hold all its known tokens.
        """
        state, space = self._scheduler.waiting[0], self._scheduler.blocks
        if not self._admit():
            return False
        self._num_cached_by_state.setdefault(state, state.num_cached_tokens)
        if space is None:
            return True
        block_ids = held_blocks(state).table.block_ids
        first = state.num_computed_tokens // space.block_size
        is_copied = first < len(block_ids) and space.pool.ref_count(block_ids[first]) > 1
        num_missing = BlockTable.blocks_for(state.num_tokens, space.block_size) - len(block_ids) + is_copied
        if num_missing > space.num_available_blocks:
            message = (
                f"request {state.request.request_id}, sample {state.sample_index}, came in with {len(block_ids)} "
                f"blocks, needs {num_missing} more for its {state.num_tokens} tokens, and "
                f"{space.num_available_blocks} can be had"
            )
            raise InvariantViolation(message, num_missing=num_missing)
        return True

    def _check_num_cached(self, state: RequestState) -> None:
        first = self._num_cached_by_state[state]
        if state.num_cached_tokens != first:
            message = (
                f"request {state.request.request_id}, sample {state.sample_index}, has {state.num_cached_tokens} "
                f"cached tokens, and had {first} when it first came in"
            )
            raise InvariantViolation(message, num_cached_tokens=state.num_cached_tokens)

"""Which blocks does each request hold? Reserving, sharing and taking back, whole or not at all.

What it means for keys and values is noted as operations, in the order in which they were decided, and the cache
carries them out before the next step.
"""

from functools import partial

from refinfer.cache.block_pool import BlockPool
from refinfer.cache.block_table import BlockTable
from refinfer.cache.prefix import PrefixCursor, PrefixMap
from refinfer.scheduler.held_blocks import HeldBlocks
from refinfer.scheduler.output import BlockOperation, CopyBlock, DropSwapped, ForgetBlocks, SwapIn, SwapOut
from refinfer.scheduler.request import RequestState, RequestStatus, held_blocks


class BlockSpace:
    """The blocks of a paged cache, as handed out to requests.

    Args:
        num_blocks: Blocks of the pool.
        block_size: Token places of a block.
        enable_prefix_caching: Whether computed blocks can be found by later requests.
        num_swap_blocks: Blocks that host memory takes; a request that finds no room there recomputes.
        shuffle_seed: Seed of a random placement of blocks; None hands them out in order.
        model_key: Names the model in the keys of the prefix map.

    Attributes:
        pool: The blocks.
        prefix: What can be found by its tokens; None without prefix caching.
        num_copies: Copies on write so far.
        num_evictions: Cached blocks that were given up so far.
        num_hit_tokens: Tokens found in the prefix cache so far.
        num_forks: Samples that took over another sample's blocks so far.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_prefix_caching: bool = True,
        num_swap_blocks: int = 0,
        shuffle_seed: int | None = None,
        model_key: str = "",
    ) -> None:
        self.block_size = block_size
        self.num_swap_blocks = num_swap_blocks
        self.num_copies = self.num_evictions = self.num_hit_tokens = self.num_forks = 0
        self._model_key = model_key if enable_prefix_caching else None
        self._new_pool = partial(BlockPool, num_blocks, shuffle_seed=shuffle_seed)
        self.reset()

    def reset(self) -> None:
        """Make every block free, with nothing to be found in any and nothing in host memory."""
        key, self.pool = self._model_key, self._new_pool()
        self.prefix = None if key is None else PrefixMap(self.pool, self.block_size, key)
        self.num_swapped_blocks = 0
        self._operations: list[BlockOperation] = []

    @property
    def num_available_blocks(self) -> int:
        """Blocks that are free, or would be once cached ones are given up."""
        num_evictable = 0 if self.prefix is None else self.prefix.num_evictable_blocks
        return self.pool.num_free_blocks + num_evictable

    def take_operations(self) -> tuple[BlockOperation, ...]:
        """Hands over what the cache has to do, in order, and forgets it."""
        operations, self._operations = tuple(self._operations), []
        return operations

    def open(self, state: RequestState) -> None:
        """Gives a request an empty block table."""
        state.blocks = HeldBlocks(self.block_size)

    def admit(self, state: RequestState) -> bool:
        """Gives a request that waits what is there of its keys and values, if all its known tokens would find room.

        It gets back what was swapped out, or shares the blocks of its first sample, or of a cached prefix.

        Returns:
            Whether it was admitted; if not, nothing has changed.
        """
        held = held_blocks(state)
        if held.num_swapped_blocks:
            return self._swap_in(state, held)
        first = state.first_sample
        if first is not None and first.status is RequestStatus.RUNNING and not state.num_output_tokens:
            return self._fork(state, held, held_blocks(first).table, first.num_computed_tokens)
        return self._share_prefix(state, held)

    def try_reserve(self, state: RequestState, num_tokens: int) -> bool:
        """Makes room for the tokens of a request up to a count, all of them or none.

        A block that others hold too is copied before the request writes to it.

        Returns:
            Whether there is room; if not, nothing has changed.
        """
        # tokens: 0 .. computed .. num_tokens
        #          keep      write: the first block written may be shared, later ones are the request's own
        table = held_blocks(state).table
        block_ids = table.block_ids
        num_new = BlockTable.blocks_for(num_tokens, self.block_size) - len(block_ids)
        first = state.num_computed_tokens // self.block_size
        is_shared = first < len(block_ids) and self.pool.ref_count(block_ids[first]) > 1
        num_needed = max(0, num_new) + is_shared
        if not num_needed:
            return True
        if not self._make_room(num_needed):
            return False
        fresh = self.pool.allocate(num_needed)
        if is_shared:
            self._copy_on_write(table, first, fresh.pop())
        table.append(fresh)
        return True

    def give_back_look_ahead(self, state: RequestState) -> None:
        """Takes back the blocks past a request's known tokens, which were reserved for tokens that were guessed."""
        table = held_blocks(state).table
        num_kept = BlockTable.blocks_for(state.num_tokens, self.block_size)
        if len(table.block_ids) > num_kept:
            self._operations.append(ForgetBlocks(tuple(self.pool.release(table.cut(num_kept)))))

    def publish(self, state: RequestState) -> None:
        """Lets others find the full blocks that a request has computed."""
        if self.prefix is not None:
            held = held_blocks(state)
            self.prefix.publish(
                state.token_ids,
                held.table.block_ids,
                state.num_computed_tokens,
                salt=state.request.cache_salt,
                cursor=held.cursor,
            )

    def preempt(self, state: RequestState, *, by_swap: bool) -> bool:
        """Takes a request's blocks back; it keeps its tokens.

        Returns:
            Whether its keys and values were swapped to host memory; if not, it has to recompute them.
        """
        held = held_blocks(state)
        num_full = BlockTable.blocks_for(state.num_computed_tokens, self.block_size)
        is_swapped = by_swap and 0 < num_full <= self.num_swap_blocks - self.num_swapped_blocks
        if is_swapped:
            self._operations.append(SwapOut(state, tuple(held.table.block_ids[:num_full])))
            held.num_swapped_blocks = num_full
            self.num_swapped_blocks += num_full
        else:
            state.num_computed_tokens = 0
        self._give_back(held)
        return is_swapped

    def close(self, state: RequestState) -> None:
        """Takes everything back from a request that has ended."""
        held = held_blocks(state)
        if held.num_swapped_blocks:
            self._operations.append(DropSwapped(state))
            self.num_swapped_blocks -= held.num_swapped_blocks
            held.num_swapped_blocks = 0
        self._give_back(held)

    def _swap_in(self, state: RequestState, held: HeldBlocks) -> bool:
        if not self._has_room(BlockTable.blocks_for(state.num_tokens, self.block_size)):
            return False
        num_blocks = held.num_swapped_blocks
        self._make_room(num_blocks)
        block_ids = self.pool.allocate(num_blocks)
        held.table.append(block_ids)
        self._operations.append(SwapIn(state, tuple(block_ids)))
        held.num_swapped_blocks = 0
        self.num_swapped_blocks -= num_blocks
        return True

    def _fork(self, state: RequestState, held: HeldBlocks, table: BlockTable, num_computed_tokens: int) -> bool:
        """Shares the first sample's blocks of the prompt, once all but its last token is computed.

        The last token runs once more, since its logits are what each sample starts from.
        """
        num_shared_tokens = state.num_prompt_tokens - 1
        if num_computed_tokens < num_shared_tokens:
            return False
        num_shared = BlockTable.blocks_for(num_shared_tokens, self.block_size)
        is_partial = num_shared_tokens % self.block_size > 0
        num_all = BlockTable.blocks_for(state.num_tokens, self.block_size)
        if not self._has_room(num_all - num_shared + is_partial):
            return False
        block_ids = table.block_ids[:num_shared]
        self.pool.hold(block_ids)
        held.table.append(block_ids)
        state.num_computed_tokens = num_shared_tokens
        self.num_forks += 1
        return True

    def _share_prefix(self, state: RequestState, held: HeldBlocks) -> bool:
        block_ids, num_tokens = self._match(state)
        num_all = BlockTable.blocks_for(state.num_tokens, self.block_size)
        for num_given_up in (0, 1):  # a last block that is shared in part needs a copy, for which there may be no room
            kept = block_ids[: len(block_ids) - num_given_up]
            num_kept = min(num_tokens, len(kept) * self.block_size)
            self.pool.hold(kept)  # so that they are not among what can be given up
            if self._has_room(num_all - len(kept) + (num_kept % self.block_size > 0)):
                held.table.append(kept)
                state.num_computed_tokens = num_kept
                self.num_hit_tokens += num_kept
                if not state.num_preemptions:
                    state.num_cached_tokens = num_kept
                return True
            self.pool.release(kept)
            if num_tokens % self.block_size == 0:
                break
        return False

    def _match(self, state: RequestState) -> tuple[list[int], int]:
        """Finds the blocks of the longest known prefix; the newest token always runs, since its logits are needed."""
        if self.prefix is None:
            return [], 0
        longest = state.num_tokens - 1
        if state.wants_prompt_logprobs:
            longest = min(longest, state.num_scored_tokens)
        return self.prefix.match(state.token_ids, salt=state.request.cache_salt, max_tokens=longest)

    def _copy_on_write(self, table: BlockTable, index: int, target: int) -> None:
        source = table.block_ids[index]
        self._operations.append(CopyBlock(source, target))
        table.replace(index, target)
        self.pool.release([source])
        self.num_copies += 1

    def _has_room(self, num_blocks: int) -> bool:
        return num_blocks <= self.num_available_blocks

    def _make_room(self, num_blocks: int) -> bool:
        """Gives up cached blocks until so many are free; changes nothing if that is not enough."""
        num_missing = num_blocks - self.pool.num_free_blocks
        if num_missing <= 0:
            return True
        if self.prefix is None or num_missing > self.prefix.num_evictable_blocks:
            return False
        evicted = self.prefix.evict(num_missing)
        self.num_evictions += len(evicted)
        self._operations.append(ForgetBlocks(tuple(evicted)))
        return True

    def _give_back(self, held: HeldBlocks) -> None:
        freed = self.pool.release(held.table.clear())
        held.cursor = PrefixCursor()
        if freed:
            self._operations.append(ForgetBlocks(tuple(freed)))

"""Faults of what is found again in a pool that is nearly full: hits, refusals, evictions, and blocks of the ended."""

from collections.abc import Sequence
from unittest import mock

from oracle.faults.registry import Area, Fault, Replacement, one_replacement
from refinfer.cache.prefix import PrefixMap
from refinfer.cache.prefix_tree import PrefixNode, PrefixRoot, PrefixTree
from refinfer.scheduler import BlockSpace, RequestState, RequestStatus
from refinfer.scheduler.request import held_blocks

_match_of_space = BlockSpace._match  # noqa: SLF001
_has_room = BlockSpace._has_room  # noqa: SLF001
_share_prefix = BlockSpace._share_prefix  # noqa: SLF001
_admit = BlockSpace.admit
_match = PrefixMap.match
_evict = PrefixMap.evict


@one_replacement(
    "hit_remembered_after_refusal",
    Area.PREFIXES,
    "what a request found when it was refused is used when it is admitted later, whatever was given up meanwhile",
    BlockSpace,
    "_match",
    models=("vllm-project/vllm#18957 (6.07)", "vllm-project/vllm#17305 (6.07)"),
    component=("scheduler/block_space.py",),
    needs=("hit", "refused admission", "eviction"),
    seen_by=("bitwise", "greedy", "symbolic", "state", "lifecycle"),
)
def hit_remembered_after_refusal(self: BlockSpace, state: RequestState) -> tuple[list[int], int]:
    """Looks once for each time that a request waits."""
    known = vars(self).setdefault("_match_by_wait", {})
    wait = (state, state.num_preemptions)
    if wait not in known:
        known[wait] = _match_of_space(self, state)
    found: tuple[list[int], int] = known[wait]
    return found


@one_replacement(
    "order_of_tokens_not_hashed",
    Area.PREFIXES,
    "a cached block counts as equal when it holds the same tokens in any order",
    PrefixTree,
    "child",
    models=("NVIDIA/Megatron-LM#4158 (6.06)",),
    component=("cache/prefix_tree.py",),
    needs=("hit",),
    seen_by=("bitwise", "greedy", "symbolic", "state"),
)
def order_of_tokens_not_hashed(
    self: PrefixTree,  # noqa: ARG001
    parent: PrefixRoot,
    token_ids: tuple[int, ...],
) -> PrefixNode | None:
    """Compares what does not depend on the order."""
    return next((node for node in parent.children if sorted(node.token_ids) == sorted(token_ids)), None)


def _touch_nothing(self: PrefixTree, chain: Sequence[PrefixNode]) -> None:
    """Leaves every node as old as it is."""


@one_replacement(
    "hits_do_not_refresh",
    Area.PREFIXES,
    "a prefix that is found does not count as used, so that what is asked for most is given up first",
    PrefixMap,
    "match",
    models=("antonellof/ferrox#14 (6.30)",),
    component=("cache/prefix.py",),
    needs=("hit", "eviction"),
    seen_by=("state",),
)
def hits_do_not_refresh(
    self: PrefixMap, token_ids: Sequence[int], salt: str | None, max_tokens: int
) -> tuple[list[int], int]:
    """Finds without touching."""
    with mock.patch.object(PrefixTree, "touch", _touch_nothing):
        return _match(self, token_ids, salt, max_tokens)


def _evict_and_note(self: PrefixMap, num_blocks: int) -> list[int]:
    freed = _evict(self, num_blocks)
    vars(self)["_has_evicted"] = vars(self).get("_has_evicted", False) or bool(freed)
    return freed


def _match_under_any_salt(
    self: PrefixMap, token_ids: Sequence[int], salt: str | None, max_tokens: int
) -> tuple[list[int], int]:
    found = [_match(self, token_ids, salt, max_tokens)]
    if vars(self).get("_has_evicted"):
        found.extend(_match(self, token_ids, other, max_tokens) for _, other in list(self._tree._roots))  # noqa: SLF001
    return max(found, key=lambda match: match[1])


salt_lost_after_eviction = Fault(
    "salt_lost_after_eviction",
    Area.PREFIXES,
    "once a cached block was given up, requests of different salts share a prefix",
    (
        Replacement(PrefixMap, "evict", _evict_and_note),
        Replacement(PrefixMap, "match", _match_under_any_salt),
    ),
    models=None,
    component=("cache/prefix.py", "cache/prefix_tree.py"),
    needs=("hit", "salt", "eviction"),
    seen_by=("symbolic", "contract"),
)


def _num_available_blocks(self: BlockSpace) -> int:
    """Counts a cached block for its node and for itself."""
    num_evictable = 0 if self.prefix is None else self.prefix.num_evictable_blocks
    return self.pool.num_free_blocks + 2 * num_evictable


idle_blocks_counted_twice = Fault(
    "idle_blocks_counted_twice",
    Area.BLOCKS,
    "cached blocks that could be given up count twice when it is asked whether a request finds room",
    (Replacement(BlockSpace, "num_available_blocks", property(_num_available_blocks)),),
    models=("sgl-project/sglang#35270 (5.07)",),
    component=("scheduler/block_space.py",),
    needs=("eviction", "full pool"),
    seen_by=("state", "lifecycle"),
)


@one_replacement(
    "admitted_for_its_first_block",
    Area.SCHEDULER,
    "a request is let in when there is room for the first of its blocks, not for all of its known tokens",
    BlockSpace,
    "_share_prefix",
    models=("vllm-project/vllm#25538 (7.13)",),
    component=("scheduler/block_space.py",),
    needs=("batch", "full pool"),
    seen_by=("state", "lifecycle"),
)
def admitted_for_its_first_block(self: BlockSpace, state: RequestState, held: object) -> bool:
    """Asks for one block at most."""

    def has_room(space: BlockSpace, num_blocks: int) -> bool:
        return _has_room(space, min(num_blocks, 1))

    with mock.patch.object(BlockSpace, "_has_room", has_room):
        return _share_prefix(self, state, held)  # type: ignore[arg-type]  # what admit passes


@one_replacement(
    "forked_from_an_ended_sample",
    Area.BLOCKS,
    "a sample takes over the prompt of its request's first sample although that has ended, and has no blocks left",
    BlockSpace,
    "admit",
    models=("vllm-project/vllm#417 (5.01)",),
    component=("scheduler/block_space.py",),
    needs=("n above 1", "uneven ends"),
    seen_by=("bitwise", "greedy", "symbolic", "state", "lifecycle"),
)
def forked_from_an_ended_sample(self: BlockSpace, state: RequestState) -> bool:
    """Does not ask whether it still runs."""
    first = state.first_sample
    if first is None or first.status is not RequestStatus.FINISHED or state.num_preemptions:
        return _admit(self, state)
    return self._fork(state, held_blocks(state), held_blocks(first).table, first.num_computed_tokens)


FAULTS = (
    hit_remembered_after_refusal,
    order_of_tokens_not_hashed,
    hits_do_not_refresh,
    salt_lost_after_eviction,
    idle_blocks_counted_twice,
    admitted_for_its_first_block,
    forked_from_an_ended_sample,
)
"""Faults of reuse."""

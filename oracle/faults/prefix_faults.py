"""Faults of prefix sharing: what is found, for whom, and whether it was computed."""

from collections.abc import Sequence

from oracle.faults.registry import Area, one_replacement
from refinfer.cache.prefix import PrefixCursor, PrefixMap
from refinfer.cache.prefix_tree import PrefixNode, PrefixRoot, PrefixTree
from refinfer.scheduler import BlockSpace, RequestState
from refinfer.scheduler.request import held_blocks

_match = PrefixMap.match
_publish = PrefixMap.publish
_evict = PrefixMap.evict
_remove = PrefixTree.remove
_share_prefix = BlockSpace._share_prefix  # noqa: SLF001


@one_replacement(
    "salt_ignored",
    Area.PREFIXES,
    "requests of different salts share a prefix",
    PrefixMap,
    "match",
    models=("vllm-project/vllm#3264 (6.15)",),
    component=("cache/prefix.py",),
    needs=("hit", "salt"),
    seen_by=("symbolic", "contract"),
)
def salt_ignored(self: PrefixMap, token_ids: Sequence[int], salt: str | None, max_tokens: int) -> tuple[list[int], int]:
    """Looks under every salt there is."""
    found = [_match(self, token_ids, salt, max_tokens)]
    for _, other in list(self._tree._roots):  # noqa: SLF001
        found.append(_match(self, token_ids, other, max_tokens))
    return max(found, key=lambda match: match[1])


@one_replacement(
    "parent_ignored",
    Area.PREFIXES,
    "a block is found by its own tokens, whatever came before them",
    PrefixTree,
    "child",
    models=None,
    component=("cache/prefix_tree.py",),
    needs=("hit", "repeated tokens"),
    seen_by=("symbolic", "state", "bitwise", "greedy"),
)
def parent_ignored(self: PrefixTree, parent: PrefixRoot, token_ids: tuple[int, ...]) -> PrefixNode | None:  # noqa: ARG001
    """Takes any node with these tokens."""
    return next((node for node in self.nodes if node.token_ids == token_ids), None)


@one_replacement(
    "first_token_of_block_not_compared",
    Area.PREFIXES,
    "a cached block counts as equal when all its tokens but the first are",
    PrefixTree,
    "child",
    models=("vllm-project/vllm#12621 (6.04)",),
    component=("cache/prefix_tree.py",),
    needs=("hit",),
    seen_by=("symbolic", "state", "bitwise", "greedy"),
)
def first_token_of_block_not_compared(
    self: PrefixTree,  # noqa: ARG001
    parent: PrefixRoot,
    token_ids: tuple[int, ...],
) -> PrefixNode | None:
    """Compares from the second token on."""
    return next((node for node in parent.children if node.token_ids[1:] == token_ids[1:]), None)


@one_replacement(
    "published_before_computed",
    Area.PREFIXES,
    "blocks are findable as soon as they are reserved, before their keys and values are computed",
    BlockSpace,
    "try_reserve",
    models=("vllm-project/vllm#29387 (6.09)",),
    component=("scheduler/block_space.py",),
    needs=("hit", "batch"),
    seen_by=("symbolic", "state", "bitwise", "poison"),
)
def published_before_computed(self: BlockSpace, state: RequestState, num_tokens: int) -> bool:
    """Publishes what a step is about to compute."""
    is_reserved = _try_reserve(self, state, num_tokens)
    if is_reserved and self.prefix is not None:
        held = held_blocks(state)
        salt = state.request.cache_salt
        self.prefix.publish(state.token_ids, held.table.block_ids, num_tokens, salt, held.cursor)
    return is_reserved


_try_reserve = BlockSpace.try_reserve


@one_replacement(
    "part_of_block_published",
    Area.PREFIXES,
    "the newest block is published while only a part of it is computed",
    PrefixMap,
    "publish",
    models=("sgl-project/sglang#24590 (6.31)",),
    component=("cache/prefix.py", "scheduler/block_space.py"),
    needs=("hit", "block border"),
    seen_by=("symbolic", "state", "bitwise", "poison"),
)
def part_of_block_published(
    self: PrefixMap,
    token_ids: Sequence[int],
    block_ids: Sequence[int],
    num_computed_tokens: int,
    salt: str | None,
    cursor: PrefixCursor | None = None,
) -> None:
    """Counts one token more than was computed, where there is one."""
    num_tokens = min(num_computed_tokens + 1, len(token_ids), len(block_ids) * self._block_size)
    _publish(self, token_ids, block_ids, num_tokens, salt, cursor)


@one_replacement(
    "evicted_but_findable",
    Area.PREFIXES,
    "a cached block that was given up can still be found",
    PrefixTree,
    "remove",
    models=("vllm-project/vllm#4761 (6.28)", "GeeeekExplorer/nano-vllm#163 (6.12)"),
    component=("cache/prefix_tree.py",),
    needs=("hit", "eviction"),
    seen_by=("symbolic", "state", "bitwise", "poison", "lifecycle"),
)
def evicted_but_findable(self: PrefixTree, leaf: PrefixNode) -> None:
    """Takes the node out of the queue only."""
    parent, siblings = leaf.parent, list(leaf.parent.children)
    _remove(self, leaf)
    parent.children[:] = siblings
    self._nodes_by_hash.setdefault(leaf.chain_hash, []).append(leaf)


@one_replacement(
    "parents_evicted_first",
    Area.PREFIXES,
    "the first block of a chain is given up before those behind it",
    PrefixMap,
    "evict",
    models=("huggingface/text-generation-inference#2490 (6.20)",),
    component=("cache/prefix.py",),
    needs=("hit", "eviction"),
    seen_by=("symbolic", "state", "lifecycle"),
)
def parents_evicted_first(self: PrefixMap, num_blocks: int) -> list[int]:
    """Frees the newest idle blocks from the root on."""
    idle = [node for node in self._tree.nodes if self._pool.ref_count(node.block_id) == 1]
    roots = [node for node in idle if not isinstance(node.parent, PrefixNode) and node.children]
    if not roots:
        return _evict(self, num_blocks)
    self._pool.unpin(roots[0].block_id)
    return [roots[0].block_id, *_evict(self, num_blocks - 1)]


@one_replacement(
    "newest_token_hit_too",
    Area.PREFIXES,
    "a prompt that is cached to its end runs no token at all",
    BlockSpace,
    "_match",
    models=("vllm-project/vllm#3239 (6.02)", "GeeeekExplorer/nano-vllm#144 (6.19)"),
    component=("scheduler/block_space.py",),
    needs=("hit", "block border"),
    seen_by=("symbolic", "state", "lifecycle"),
)
def newest_token_hit_too(self: BlockSpace, state: RequestState) -> tuple[list[int], int]:
    """Covers every known token."""
    if self.prefix is None:
        return [], 0
    return self.prefix.match(state.token_ids, state.request.cache_salt, state.num_tokens)


@one_replacement(
    "hit_counts_one_token_more",
    Area.PREFIXES,
    "a prefix hit skips one token more than it covers",
    BlockSpace,
    "_share_prefix",
    models=("vllm-project/vllm#37076 (5.11)",),
    component=("scheduler/block_space.py",),
    needs=("hit",),
    seen_by=("symbolic", "state", "bitwise", "poison"),
)
def hit_counts_one_token_more(self: BlockSpace, state: RequestState, held: object) -> bool:
    """Skips a token that no block holds."""
    is_admitted = _share_prefix(self, state, held)  # type: ignore[arg-type]  # what admit passes
    if state.num_computed_tokens and state.num_computed_tokens + 1 < state.num_tokens:
        state.num_computed_tokens += 1
    return is_admitted


@one_replacement(
    "prompt_logprobs_lost_on_hit",
    Area.PREFIXES,
    "log-probabilities of prompt tokens are missing where the prefix was cached",
    BlockSpace,
    "_match",
    models=("vllm-project/vllm#8268 (14.05)",),
    component=("scheduler/block_space.py",),
    needs=("hit", "prompt logprobs"),
    seen_by=("symbolic", "contract", "lifecycle"),
)
def prompt_logprobs_lost_on_hit(self: BlockSpace, state: RequestState) -> tuple[list[int], int]:
    """Takes hits although logits of the prompt are wanted."""
    if self.prefix is None:
        return [], 0
    return self.prefix.match(state.token_ids, state.request.cache_salt, state.num_tokens - 1)


FAULTS = (
    salt_ignored,
    parent_ignored,
    first_token_of_block_not_compared,
    published_before_computed,
    part_of_block_published,
    evicted_but_findable,
    parents_evicted_first,
    newest_token_hit_too,
    hit_counts_one_token_more,
    prompt_logprobs_lost_on_hit,
)
"""Faults of prefix sharing."""

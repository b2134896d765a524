"""What a prefix map should find, and which of its blocks it should give up first: kept once more, in a dictionary."""

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.errors import InvariantViolation
from refinfer.cache.prefix import PrefixCursor, PrefixMap
from refinfer.scheduler import BlockSpace

Chain = tuple[str | None, tuple[int, ...]]
"""A salt, and all tokens up to the end of a block."""


@dataclass
class _Published:
    """One published block.

    Attributes:
        block_id: The block.
        surely_used: The newest call that surely used it: that published it, or found it.
        perhaps_used: The newest call that may have used it: a request that has its tokens published others.
    """

    block_id: int
    surely_used: int
    perhaps_used: int


class PrefixBook:
    """Stands before a prefix map and holds what it finds and gives up to the promises that it makes.

    Calls are counted, not uses: of blocks that one call used any may be given up before the others.

    Args:
        space: The blocks; nothing may be published yet.
        prefix: Their prefix map, whose methods are replaced.
    """

    def __init__(self, space: BlockSpace, prefix: PrefixMap) -> None:
        self._space = space
        self._published: dict[Chain, _Published] = {}
        self._num_calls = 0
        self._match, self._publish, self._evict = prefix.match, prefix.publish, prefix.evict
        # No switch for being watched in `refinfer`, on purpose: the methods of this one map are replaced.
        prefix.match = self.match  # type: ignore[method-assign]
        prefix.publish = self.publish  # type: ignore[method-assign]
        prefix.evict = self.evict  # type: ignore[method-assign]

    def match(self, token_ids: Sequence[int], salt: str | None, max_tokens: int) -> tuple[list[int], int]:
        """Finds what the map finds.

        Raises:
            InvariantViolation: Its full blocks are not those that were published last for these tokens, or not all.
        """
        block_ids, num_covered = self._match(token_ids, salt, max_tokens)
        self._num_calls += 1
        size = self._space.block_size
        expected = []
        for chain in self._chains(token_ids, salt, min(max_tokens, len(token_ids))):
            if chain not in self._published:
                break
            expected.append(self._published[chain])
        num_full = num_covered // size
        if block_ids[:num_full] != [node.block_id for node in expected]:
            message = (
                f"tokens {list(token_ids)} with salt {salt!r} find blocks {block_ids}, which cover {num_covered}; "
                f"published are blocks {[node.block_id for node in expected]}"
            )
            raise InvariantViolation(message, block_ids=block_ids)
        for node in self._published.values():
            if node.block_id in block_ids:
                node.surely_used = node.perhaps_used = self._num_calls
        return block_ids, num_covered

    def publish(
        self,
        token_ids: Sequence[int],
        block_ids: Sequence[int],
        num_computed_tokens: int,
        salt: str | None,
        cursor: PrefixCursor | None = None,
    ) -> None:
        """Makes blocks findable; those that are there already stay."""
        self._publish(token_ids, block_ids, num_computed_tokens, salt, cursor)
        self._num_calls += 1
        for place, chain in enumerate(self._chains(token_ids, salt, num_computed_tokens)):
            node = self._published.get(chain)
            if node is None:
                self._published[chain] = _Published(block_ids[place], self._num_calls, self._num_calls)
            else:
                node.perhaps_used = self._num_calls

    def evict(self, num_blocks: int) -> list[int]:
        """Gives up what the map gives up.

        Raises:
            InvariantViolation: Another block that could go was used longer ago.
        """
        pool = self._space.pool
        idle = {node.block_id for node in self._published.values() if pool.ref_count(node.block_id) == 1}
        freed = self._evict(num_blocks)
        for block_id in freed:
            gone, own = next((chain, node) for chain, node in self._published.items() if node.block_id == block_id)
            leaves = [node for node in self._leaves() if node.block_id in idle]
            older = [node.block_id for node in leaves if node.perhaps_used < own.surely_used]
            if older and own in leaves:
                message = f"cached block {block_id} was given up, and blocks {older} were used longer ago"
                raise InvariantViolation(message, block_id=block_id, older=older)
            del self._published[gone]
        # Blocks that others hold are unpublished, and not freed, where they stand after one that is.
        self._published = {chain: node for chain, node in self._published.items() if pool.is_pinned(node.block_id)}
        return freed

    def _chains(self, token_ids: Sequence[int], salt: str | None, num_tokens: int) -> list[Chain]:
        size = self._space.block_size
        return [(salt, tuple(token_ids[:end])) for end in range(size, num_tokens + 1, size)]

    def _leaves(self) -> list[_Published]:
        size = self._space.block_size
        parents = {(salt, tokens[:-size]) for salt, tokens in self._published}
        return [node for chain, node in self._published.items() if chain not in parents]

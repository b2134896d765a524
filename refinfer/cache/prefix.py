"""The prefix map: which blocks already hold the first tokens of a request?

Every full block of computed tokens can be published as a node of a tree. A node stands for the tokens of its block
*after* those of its parents, since keys and values depend on all that went before:

    root (model, salt)
      [5 7] in block 3
        [2 2] in block 0     a request that begins 5 7 2 2 finds blocks 3 and 0
        [2 9] in block 8     one that begins 5 7 2 9 finds blocks 3 and 8
      [2 2] in block 6       other keys and values than block 0
"""

from collections.abc import Sequence

from refinfer.cache.block_pool import BlockPool
from refinfer.cache.prefix_tree import ChainedHash, PrefixNode, PrefixRoot, PrefixTree, chained_hash
from refinfer.errors import BlockAccountingError, InvariantError


class PrefixCursor:
    """How far a request has been published; each has one of its own.

    Attributes:
        node: The node of its newest full block, perhaps with an equal block of another request.
        num_blocks: Blocks from its first up to that one.
    """

    __slots__ = ("node", "num_blocks")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Starts at the first block again, as a request must that has lost its blocks."""
        self.node: PrefixNode | None = None
        self.num_blocks = 0


class PrefixMap:
    """Published blocks, found by the tokens they hold and all before them; each has one reference, its pin.

    It is the only one that pins blocks of its pool. Idle blocks, held by their pins alone, stay findable until
    `evict` gives them up.

    Args:
        pool: Where references are counted.
        block_size: Tokens of a full block.
        model_key: What the content of a block depends on besides tokens and salt.
        hash_function: How nodes are hashed; no choice changes what is found.
    """

    def __init__(
        self, pool: BlockPool, block_size: int, model_key: str = "", *, hash_function: ChainedHash = chained_hash
    ) -> None:
        self._pool = pool
        self._block_size = block_size
        self._model_key = model_key
        self._tree = PrefixTree(hash_function)

    @property
    def num_pinned_blocks(self) -> int:
        """Blocks that are published."""
        return self._pool.num_pinned_blocks

    @property
    def num_evictable_blocks(self) -> int:
        """Blocks that are published and that nobody else holds; `evict` can free every one of them."""
        return self._pool.num_idle_blocks

    @property
    def token_ids_by_block(self) -> dict[int, tuple[int, ...]]:
        """Of each published block, the tokens under which it is found after those of its parents."""
        return {node.block_id: node.token_ids for node in self._tree.nodes}

    def match(self, token_ids: Sequence[int], salt: str | None, max_tokens: int) -> tuple[list[int], int]:
        """Finds the published blocks whose tokens are the first of a request.

        Takes no reference: hold the blocks before anything else happens to the pool.

        Args:
            token_ids: The tokens of the request, as far as they are known.
            salt: Requests share blocks only with those of the same salt.
            max_tokens: Most tokens to cover. Where that ends inside a published block which agrees with every token
                of the request that is known, the block is given as well; it has to be copied before it is written.

        Returns:
            The blocks in order, and how many tokens they cover.
        """
        tree, size, limit = self._tree, self._block_size, min(max_tokens, len(token_ids))
        parent: PrefixRoot = tree.root((self._model_key, salt))
        found: list[PrefixNode] = []
        stop = size
        while stop <= limit:
            node = tree.child(parent, tuple(token_ids[stop - size : stop]))
            if node is None:
                break
            found.append(node)
            parent = node
            stop += size
        # The chain ended for want of a node, or of tokens that may be covered
        num_covered = stop - size
        if num_covered < limit < stop:
            node = parent.child_that_begins(tuple(token_ids[num_covered:stop]))
            if node:
                found.append(node)
                num_covered = limit
        tree.touch(found)
        return [node.block_id for node in found], num_covered

    def publish(
        self,
        token_ids: Sequence[int],
        block_ids: Sequence[int],
        num_computed_tokens: int,
        salt: str | None,
        cursor: PrefixCursor | None = None,
    ) -> None:
        """Makes every full block of computed tokens findable, and pins it.

        Where a block with the same tokens after the same chain is published, that one stays,
        and the request's own goes unpublished.

        Args:
            token_ids: The tokens of the request.
            block_ids: Its block table.
            num_computed_tokens: How many of the tokens have their keys and values in the blocks.
            salt: As for `match`.
            cursor: The request's own, from its last call; it is brought up to date. Without one, or when blocks
                it relied on have been evicted, the walk starts at the first block.

        Raises:
            InvariantError: More tokens are computed than there are tokens or places in blocks.
            BlockAccountingError: A block is held by nobody, or is published with other content.
        """
        cursor = PrefixCursor() if cursor is None else cursor
        if cursor.node and not cursor.node.is_published:
            cursor.reset()
        size = self._block_size
        if num_computed_tokens < (cursor.num_blocks + 1) * size:
            return
        self._check_computed(num_computed_tokens, len(token_ids), len(block_ids))
        walked = []
        parent: PrefixRoot = cursor.node or self._tree.root((self._model_key, salt))
        for index in range(cursor.num_blocks, num_computed_tokens // size):
            own = tuple(token_ids[index * size : (index + 1) * size])
            node = self._tree.child(parent, own)
            if node is None:
                self._pool.pin(block_ids[index])
                node = self._tree.add(parent, own, block_ids[index])
            walked.append(node)
            cursor.node, cursor.num_blocks, parent = node, index + 1, node
        self._tree.touch(walked)

    def evict(self, num_blocks: int) -> list[int]:
        """Frees idle blocks, the least recently used first, but a child before its parent.

        A request that computed the same tokens beside another may hold a child and not its parent. Then, once there is
        nothing else to free, the child goes unpublished; its block stays with the request.

        Returns:
            The blocks that fell free: as many as asked for, or all that were idle.
        """
        num_wanted = min(num_blocks, self.num_evictable_blocks)
        freed: list[int] = []
        held: list[PrefixNode] = []
        while len(freed) < num_wanted:
            leaf = self._tree.next_leaf()
            if leaf is None:
                leaf = next(leaf for leaf in held if self._is_under_idle(leaf))
                held.remove(leaf)
            elif self._pool.ref_count(leaf.block_id) > 1:
                held.append(leaf)
                continue
            self._tree.remove(leaf)
            if self._pool.unpin(leaf.block_id):
                freed.append(leaf.block_id)
        for leaf in held:
            self._tree.enqueue(leaf)
        return freed

    def clear(self) -> list[int]:
        """Gives up every pin, as new weights demand; gives the blocks that fell free."""
        return [node.block_id for node in self._tree.clear() if self._pool.unpin(node.block_id)]

    def check_integrity(self) -> None:
        """Checks that nodes and pins are the same blocks, one for one, and that the tree is sound.

        Raises:
            BlockAccountingError: They are not; the message says where.
        """
        self._tree.check_integrity()
        block_ids = [node.block_id for node in self._tree.nodes]
        pinned = [block_id for block_id in range(self._pool.num_blocks) if self._pool.is_pinned(block_id)]
        if sorted(block_ids) != pinned:
            message = f"blocks {sorted(block_ids)} are published and {pinned} are pinned; each needs the other"
            raise BlockAccountingError(message, published=block_ids, pinned=pinned)

    def _check_computed(self, num_computed_tokens: int, num_tokens: int, num_blocks: int) -> None:
        num_full = num_computed_tokens // self._block_size
        if num_computed_tokens > num_tokens or num_full > num_blocks:
            message = (
                f"{num_computed_tokens} tokens in blocks of {self._block_size} cannot be computed; "
                f"the request has {num_tokens} tokens and {num_blocks} blocks"
            )
            raise InvariantError(message, num_computed_tokens=num_computed_tokens)

    def _is_under_idle(self, node: PrefixNode) -> bool:
        parent = node.parent
        while isinstance(parent, PrefixNode):
            if self._pool.ref_count(parent.block_id) == 1:
                return True
            parent = parent.parent
        return False

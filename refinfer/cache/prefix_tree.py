"""The tree behind the prefix map: what was computed after what, and which leaf was used longest ago?

Nodes are found by a hash chained over their parents' hashes. Hashes may collide: a node is the one that is looked for
when its parent is the same node and its tokens are equal, and for no other reason.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from operator import attrgetter

from refinfer.errors import BlockAccountingError

ChainedHash = Callable[[int, tuple[int, ...]], int]
"""Gives a node's hash from that of its parent and its own tokens."""

_token_ids_of = attrgetter("token_ids")


def chained_hash(parent_hash: int, token_ids: tuple[int, ...]) -> int:
    """Mixes the hash of a chain with the tokens of one more block."""
    return hash((parent_hash, token_ids))


class PrefixRoot:
    """Where chains begin that may share blocks with each other.

    Attributes:
        chain_hash: The hash that those of the chains begin from.
        children: The nodes of first blocks, ordered by their tokens.
    """

    __slots__ = ("chain_hash", "children", "key")

    def __init__(self, key: tuple[str, str | None]) -> None:
        self.key = key
        self.chain_hash = hash(key)
        self.children: list[PrefixNode] = []

    def child_that_begins(self, token_ids: tuple[int, ...]) -> "PrefixNode | None":
        """Finds a child whose first tokens are these, however few."""
        place = bisect_left(self.children, token_ids, key=_token_ids_of)
        if place < len(self.children) and self.children[place].token_ids[: len(token_ids)] == token_ids:
            return self.children[place]
        return None


class PrefixNode(PrefixRoot):
    """One full block of computed tokens after those of its parents.

    Attributes:
        parent: The node of the block before it, or the root.
        token_ids: The tokens of its own block.
        block_id: The block that holds their keys and values.
        last_used: Grows with every use; no two nodes have the same.
        is_published: False once it has been taken out of the tree.
        is_queued: Whether it waits in the tree's queue.
    """

    __slots__ = ("block_id", "is_published", "is_queued", "last_used", "parent", "token_ids")

    def __init__(self, parent: PrefixRoot, chain_hash: int, token_ids: tuple[int, ...], block_id: int) -> None:
        self.chain_hash = chain_hash
        self.children = []
        self.parent = parent
        self.token_ids = token_ids
        self.block_id = block_id
        self.last_used = 0
        self.is_published = True
        self.is_queued = False


class PrefixTree:
    """Nodes by content, and the leaves among them by last use.

    Args:
        hash_function: How nodes are hashed.
    """

    def __init__(self, hash_function: ChainedHash) -> None:
        self._hash = hash_function
        self._roots: dict[tuple[str, str | None], PrefixRoot] = {}
        self._nodes_by_hash: dict[int, list[PrefixNode]] = {}
        # A node waits here once, under a time at which it was used; it may have been used again, or have children.
        self._queue: list[tuple[int, PrefixNode]] = []
        self._time = 0

    @property
    def nodes(self) -> list[PrefixNode]:
        """Every node, in no order that means anything."""
        return [node for bucket in self._nodes_by_hash.values() for node in bucket]

    def root(self, key: tuple[str, str | None]) -> PrefixRoot:
        """Gives the root of a key; the tree keeps it as long as it has children."""
        return self._roots.get(key) or PrefixRoot(key)

    def child(self, parent: PrefixRoot, token_ids: tuple[int, ...]) -> PrefixNode | None:
        """Finds the node of one full block after those of another."""
        for node in self._nodes_by_hash.get(self._hash(parent.chain_hash, token_ids), ()):
            if node.parent is parent and node.token_ids == token_ids:
                return node
        return None

    def add(self, parent: PrefixRoot, token_ids: tuple[int, ...], block_id: int) -> PrefixNode:
        """Makes the node of one more block; the parent must not have one for these tokens."""
        chain_hash = self._hash(parent.chain_hash, token_ids)
        node = PrefixNode(parent, chain_hash, token_ids, block_id)
        if not isinstance(parent, PrefixNode):
            self._roots[parent.key] = parent
        insort(parent.children, node, key=_token_ids_of)
        self._nodes_by_hash.setdefault(chain_hash, []).append(node)
        self.touch([node])
        self.enqueue(node)
        return node

    def touch(self, chain: Sequence[PrefixNode]) -> None:
        """Makes nodes the most recently used ones: the first of the chain last, so that tails are older."""
        for node in reversed(chain):
            self._time += 1
            node.last_used = self._time

    def enqueue(self, node: PrefixNode) -> None:
        """Lets a leaf wait for its turn, unless it does."""
        if not node.is_queued:
            node.is_queued = True
            heappush(self._queue, (node.last_used, node))

    def next_leaf(self) -> PrefixNode | None:
        """Takes the leaf that was used longest ago out of the queue; None when no leaf waits.

        Nobody moves an entry when a node is used or gets a child: what is out of date is seen to here.
        """
        while self._queue:
            time, node = heappop(self._queue)
            node.is_queued = False
            if node.is_published and not node.children:
                if time == node.last_used:
                    return node
                self.enqueue(node)
        return None

    def remove(self, leaf: PrefixNode) -> None:
        """Takes a leaf out of the tree; its parent may become one."""
        siblings, bucket = leaf.parent.children, self._nodes_by_hash[leaf.chain_hash]
        del siblings[bisect_left(siblings, leaf.token_ids, key=_token_ids_of)]
        bucket.remove(leaf)
        if not bucket:
            del self._nodes_by_hash[leaf.chain_hash]
        leaf.is_published = False
        if siblings:
            return
        if isinstance(leaf.parent, PrefixNode):
            self.enqueue(leaf.parent)
        else:
            del self._roots[leaf.parent.key]

    def clear(self) -> list[PrefixNode]:
        """Takes every node out of the tree, and gives them."""
        nodes = self.nodes
        for node in nodes:
            node.is_published = False
        self._roots.clear()
        self._nodes_by_hash.clear()
        self._queue.clear()
        return nodes

    def check_integrity(self) -> None:
        """Checks that chains, hashes and the queue agree.

        Raises:
            BlockAccountingError: They do not; the message says where.
        """
        nodes = self.nodes
        chained: list[PrefixNode] = [node for root in self._roots.values() for node in root.children]
        for node in chained:
            chained.extend(node.children)
        parents = [*self._roots.values(), *chained]
        queued = [node for _, node in self._queue]
        is_wrong_by_finding = {
            "chains and hashes do not find the same nodes": sorted(map(id, nodes)) != sorted(map(id, chained)),
            "a child does not know its parent": any(
                child.parent is not node for node in parents for child in node.children
            ),
            "children are out of order": any(
                first.token_ids >= second.token_ids
                for node in parents
                for first, second in zip(node.children, node.children[1:], strict=False)
            ),
            "a node is hashed as another": any(
                node.chain_hash != self._hash(node.parent.chain_hash, node.token_ids) for node in nodes
            ),
            "a node of the tree is said to be out of it": not all(node.is_published for node in nodes),
            "a leaf does not wait": not all(node.children or node.is_queued for node in nodes),
            "a node waits twice": len(set(map(id, queued))) < len(queued),
            "a root is kept without children": not all(root.children for root in self._roots.values()),
            "a node that is not queued is said to be": {id(node) for node in nodes if node.is_queued}
            != {id(node) for node in queued if node.is_published},
        }
        for finding, is_wrong in is_wrong_by_finding.items():
            if is_wrong:
                message = f"the prefix tree of {len(nodes)} nodes does not add up: {finding}"
                raise BlockAccountingError(message, finding=finding)

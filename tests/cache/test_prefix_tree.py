"""The tree behind the prefix map: content decides, and leaves wait by last use."""

import pytest

from refinfer.cache.prefix_tree import PrefixNode, PrefixTree, chained_hash
from refinfer.errors import BlockAccountingError


@pytest.fixture(params=["chained", "all equal"])
def tree(request):
    """With hashes that tell nodes apart, and with hashes that never do."""
    return PrefixTree(chained_hash if request.param == "chained" else lambda _parent_hash, _token_ids: 7)


ROOT = ("", None)


def waiting(tree):
    """The block ids of leaves in the order of their turn; each is removed as it comes."""
    block_ids = []
    while leaf := tree.next_leaf():
        tree.remove(leaf)
        block_ids.append(leaf.block_id)
    return block_ids


def test_child_is_found_by_parent_and_tokens_alone(tree):
    root = tree.root(ROOT)
    first = tree.add(root, (1, 2), 0)
    second = tree.add(first, (1, 2), 1)
    other = tree.add(root, (2, 1), 2)
    assert tree.child(root, (1, 2)) is first
    assert tree.child(first, (1, 2)) is second
    assert tree.child(root, (2, 1)) is other
    assert tree.child(other, (1, 2)) is None
    assert tree.child(tree.root(("", "salt")), (1, 2)) is None
    tree.check_integrity()


def test_hashes_tell_chains_apart():
    """Nothing that is found depends on it, but how fast."""
    chains = [(parent, (first, second)) for parent in (1, 2) for first in range(8) for second in range(8)]
    assert len({chained_hash(*chain) for chain in chains}) == len(chains)
    tree = PrefixTree(chained_hash)
    assert len({tree.root((model_key, salt)).chain_hash for model_key in "ab" for salt in (None, "", "a")}) == 6


def test_child_that_begins_needs_all_tokens_to_agree(tree):
    root = tree.root(ROOT)
    for block_id, token_ids in enumerate([(2, 5, 5), (1, 9, 9), (2, 3, 4), (2, 3, 1)]):
        tree.add(root, token_ids, block_id)
    assert root.child_that_begins((2, 3)).token_ids == (2, 3, 1)
    assert root.child_that_begins((2, 3, 4)).block_id == 2
    assert root.child_that_begins((2, 5)).block_id == 0
    for others in [(2, 4), (3,), (0,), (2, 3, 4, 0)]:
        assert root.child_that_begins(others) is None


def test_leaves_come_by_last_use(tree):
    root = tree.root(ROOT)
    nodes = [tree.add(root, (token_id,), token_id) for token_id in range(4)]
    tree.touch([nodes[1]])
    tree.touch([nodes[0], nodes[2]])
    assert waiting(tree) == [3, 1, 2, 0], "of a chain that was used at once, the first is the newest"


def test_parent_comes_when_its_last_child_is_gone(tree):
    parent = tree.add(tree.root(ROOT), (1,), 0)
    tree.add(parent, (2,), 1)
    tree.add(parent, (3,), 2)
    assert waiting(tree) == [1, 2, 0]
    assert tree.root(ROOT).children == []


def test_node_that_was_taken_waits_again_when_asked(tree):
    tree.add(tree.root(ROOT), (1,), 0)
    leaf = tree.next_leaf()
    assert tree.next_leaf() is None
    tree.enqueue(leaf)
    tree.enqueue(leaf)
    tree.check_integrity()
    assert waiting(tree) == [0]


def test_queue_does_not_grow_with_use(tree):
    parent = tree.add(tree.root(ROOT), (1,), 0)
    leaf = tree.add(parent, (2,), 1)
    for _ in range(100):
        tree.touch([parent, leaf])
        tree.enqueue(leaf)
    assert len(tree._queue) == 2


def test_roots_last_as_long_as_their_children(tree):
    assert not tree._roots
    leaf = tree.add(tree.root(ROOT), (1,), 0)
    assert tree.root(ROOT) is leaf.parent
    tree.next_leaf()
    tree.remove(leaf)
    assert not tree._roots
    assert not leaf.is_published


def test_clear_empties_the_tree(tree):
    first = tree.add(tree.root(ROOT), (1,), 0)
    second = tree.add(first, (2,), 1)
    assert set(tree.clear()) == {first, second}
    assert not first.is_published
    assert tree.nodes == []
    assert tree.next_leaf() is None
    assert tree.child(tree.root(ROOT), (1,)) is None
    tree.check_integrity()


def forget_a_hash(tree, _):
    tree._nodes_by_hash.clear()


def lose_a_child(_, node):
    node.parent.children.remove(node)


def move_a_child(tree, node):
    node.parent = tree.root(ROOT)


def disorder_children(tree, _):
    tree.root(ROOT).children.reverse()


def bear_twins(tree, node):
    tree.add(node.parent, node.token_ids, 9)


def rename(_, node):
    node.chain_hash += 1


def unpublish(_, node):
    node.is_published = False


def lose_a_leaf(tree, node):
    tree._queue.clear()
    node.is_queued = False


def queue_twice(tree, _):
    tree._queue.append(tree._queue[0])


def claim_to_be_queued(tree, _):
    tree._queue.clear()


def keep_an_empty_root(tree, _):
    tree._roots["", "salt"] = tree.root(("", "salt"))


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (forget_a_hash, "do not find the same nodes"),
        (lose_a_child, "do not find the same nodes"),
        (move_a_child, "does not know its parent"),
        (disorder_children, "out of order"),
        (bear_twins, "out of order"),
        (rename, "hashed as another"),
        (unpublish, "said to be out of it"),
        (lose_a_leaf, "does not wait"),
        (queue_twice, "waits twice"),
        (claim_to_be_queued, "not queued is said to be"),
        (keep_an_empty_root, "without children"),
    ],
)
def test_check_integrity_sees_each_kind_of_damage(damage, finding):
    tree = PrefixTree(chained_hash)
    first = tree.add(tree.root(ROOT), (1,), 0)
    tree.add(tree.root(ROOT), (2,), 1)
    node = tree.add(first, (3,), 2)
    assert isinstance(node, PrefixNode)
    tree.check_integrity()
    damage(tree, node)
    with pytest.raises(BlockAccountingError, match=finding):
        tree.check_integrity()

"""The prefix map, beside a plain model: a dict of what each published block holds, and since when it was not used."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from refinfer.cache import BlockPool, BlockTable, PrefixCursor, PrefixMap
from refinfer.cache.prefix_tree import chained_hash
from refinfer.errors import BlockAccountingError, InvariantError

HASHES = {
    "chained": chained_hash,
    "all equal": lambda _parent_hash, _token_ids: 0,
    "blind to parents": lambda _parent_hash, token_ids: hash(token_ids),
    "blind to order": lambda parent_hash, token_ids: parent_hash + sum(token_ids),
}
TEXTS = (
    [0] * 9,
    [0, 0, 0, 0, 1, 1, 1, 1, 1],
    [0, 0, 0, 0, 0, 0, 1, 0, 1],
    [1, 0, 0, 0, 0, 0, 1, 0, 0],
    [0, 0, 1, 1, 1, 1, 1, 1, 0],
)

salts = st.sampled_from([None, None, None, "", "a"])
token_id_lists = st.builds(
    lambda text, num_left_out: text[: 9 - num_left_out], st.sampled_from(TEXTS), st.integers(0, 8)
)
"""Texts that have much in common, since two that were drawn freely seldom meet."""

arrivals = st.tuples(token_id_lists, salts, st.sampled_from([True, True, False]), st.sampled_from([False, False, True]))


@dataclass(eq=False)
class Published:
    """A block of the model; its key in the dict is the salt and all tokens up to its end."""

    block_id: int
    last_used: int = 0


@dataclass(eq=False)
class Running:
    """A request that has blocks."""

    token_ids: list[int]
    salt: str | None
    block_ids: list[int]
    num_computed_tokens: int
    cursor: PrefixCursor = field(default_factory=PrefixCursor)
    newest: Published | None = None
    num_published: int = 0


class PrefixMapLife(RuleBasedStateMachine):
    """Requests of two token ids come, share, compute, grow and go, in a pool that is too small for them.

    Blocks have content here: what a matched block holds is compared with what the request needs.
    """

    @initialize(
        num_blocks=st.sampled_from([40, 24, 16, 9]),
        block_size=st.sampled_from([2, 3, 1]),
        seed=st.none() | st.integers(0, 3),
        name=st.sampled_from(sorted(HASHES)),
    )
    def start(self, num_blocks, block_size, seed, name):
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, shuffle_seed=seed)
        self.map = PrefixMap(self.pool, block_size, "model", hash_function=HASHES[name])
        self.published: dict[tuple[str | None, tuple[int, ...]], Published] = {}
        self.time = 0
        self.running: list[Running] = []
        self.content_by_block: dict[int, tuple[str | None, tuple[int, ...]]] = {}

    def key(self, request, num_blocks):
        return request.salt, tuple(request.token_ids[: num_blocks * self.block_size])

    def use(self, chain):
        """The tail first, so that it is older."""
        for entry in reversed(chain):
            self.time += 1
            entry.last_used = self.time

    def num_holders(self, block_id):
        return sum(request.block_ids.count(block_id) for request in self.running)

    def has_child(self, key):
        salt, token_ids = key
        return any(
            other_salt == salt and len(other) > len(token_ids) and other[: len(token_ids)] == token_ids
            for other_salt, other in self.published
        )

    def is_under_idle(self, key):
        salt, token_ids = key
        parents = [(salt, token_ids[:stop]) for stop in range(self.block_size, len(token_ids), self.block_size)]
        return any(not self.num_holders(self.published[parent].block_id) for parent in parents)

    def expected_match(self, token_ids, salt, max_tokens):
        """Looks at every published block; gives the chain, and the tokens it covers."""
        chain: list[Published] = []
        size = self.block_size
        limit = min(max_tokens, len(token_ids))
        while len(chain) * size + size <= limit:
            entry = self.published.get((salt, tuple(token_ids[: (len(chain) + 1) * size])))
            if entry is None:
                return chain, len(chain) * size
            chain.append(entry)
        known = tuple(token_ids[: (len(chain) + 1) * size])
        if len(chain) * size < limit:
            candidates = [
                entry
                for (own_salt, own), entry in sorted(self.published.items(), key=lambda item: item[0][1])
                if own_salt == salt and len(own) == (len(chain) + 1) * size and own[: len(known)] == known
            ]
            if candidates:
                return [*chain, candidates[0]], limit
        return chain, len(chain) * size

    def expected_evictions(self, num_blocks):
        freed: list[int] = []
        while len(freed) < num_blocks:
            leaves = [key for key in self.published if not self.has_child(key)]
            leaves.sort(key=lambda key: self.published[key].last_used)
            idle = [key for key in leaves if not self.num_holders(self.published[key].block_id)]
            over_idle = [key for key in leaves if self.is_under_idle(key)]
            if not idle and not over_idle:
                break
            entry = self.published.pop(idle[0] if idle else over_idle[0])
            if idle:
                freed.append(entry.block_id)
        return freed

    def evict_and_compare(self, num_blocks):
        expected = self.expected_evictions(num_blocks)
        assert self.map.evict(num_blocks) == expected
        for block_id in expected:
            del self.content_by_block[block_id]

    def match_and_compare(self, token_ids, salt, max_tokens):
        chain, num_covered = self.expected_match(token_ids, salt, max_tokens)
        block_ids, num_matched = self.map.match(token_ids, salt, max_tokens)
        assert (block_ids, num_matched) == ([entry.block_id for entry in chain], num_covered)
        self.use(chain)
        for index, block_id in enumerate(block_ids):
            stop = min((index + 1) * self.block_size, num_matched)
            held_salt, held = self.content_by_block[block_id]
            assert (held_salt, held[:stop]) == (salt, tuple(token_ids[:stop])), "the block holds these very tokens"
        return block_ids, num_matched

    def room_for(self, num_blocks):
        """Takes blocks, at the cost of idle ones; None when there are too few."""
        if num_blocks > self.pool.num_free_blocks + self.map.num_evictable_blocks:
            return None
        self.evict_and_compare(num_blocks - self.pool.num_free_blocks)
        return self.pool.allocate(num_blocks)

    def free(self, block_ids):
        for block_id in self.pool.release(block_ids):
            self.content_by_block.pop(block_id, None)

    @rule(requests=st.lists(arrivals, min_size=1, max_size=4))
    def arrive(self, requests):
        for request in requests:
            self.admit(*request)

    def admit(self, token_ids, salt, shares, stays):
        """Shares what is there, and copies a block that it will have to write in; goes away when there is no room.

        Who does not stay computes all its tokens before it goes, so that its blocks are idle.
        """
        size, request = self.block_size, Running(token_ids, salt, [], 0)
        if shares:
            request.block_ids, request.num_computed_tokens = self.match_and_compare(token_ids, salt, len(token_ids) - 1)
            self.pool.hold(request.block_ids)
        self.running.append(request)
        is_partial = request.num_computed_tokens % size > 0
        own = self.room_for(BlockTable.blocks_for(len(token_ids), size) - len(request.block_ids) + is_partial)
        if own is None:
            self.running.remove(request)
            self.free(request.block_ids)
        elif is_partial:
            shared = request.block_ids.pop()
            self.content_by_block[own[0]] = (salt, tuple(token_ids[: request.num_computed_tokens]))
            request.block_ids += own
            self.free([shared])
        else:
            request.block_ids += own
        if own is not None and not stays:
            self.run(request, len(token_ids))
            self.free(request.block_ids)
            self.running.remove(request)

    @rule(token_ids=token_id_lists, salt=salts, max_tokens=st.integers(-1, 10))
    def look(self, token_ids, salt, max_tokens):
        self.match_and_compare(token_ids, salt, max_tokens)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), num_tokens=st.integers(0, 4))
    def compute(self, data, num_tokens):
        self.run(data.draw(st.sampled_from(self.running)), num_tokens)

    def run(self, request, num_tokens):
        """Computes the next tokens of a request, and publishes what is full."""
        size = self.block_size
        stop = min(len(request.token_ids), request.num_computed_tokens + num_tokens)
        for place in range(request.num_computed_tokens, stop):
            block_id = request.block_ids[place // size]
            self.content_by_block[block_id] = (request.salt, tuple(request.token_ids[: place + 1]))
        request.num_computed_tokens = stop
        if request.num_published:
            newest = self.published.get(self.key(request, request.num_published))
            if newest is None or newest is not request.newest:
                request.num_published = 0
        chain = [
            self.published.setdefault(self.key(request, index + 1), Published(request.block_ids[index]))
            for index in range(request.num_published, stop // size)
        ]
        if chain:
            request.newest, request.num_published = chain[-1], stop // size
        self.use(chain)
        self.map.publish(request.token_ids, request.block_ids, stop, request.salt, request.cursor)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), token_ids=token_id_lists)
    def grow(self, data, token_ids):
        request = data.draw(st.sampled_from(self.running))
        num_tokens = len(request.token_ids) + len(token_ids)
        own = self.room_for(BlockTable.blocks_for(num_tokens, self.block_size) - len(request.block_ids))
        if own is not None:
            request.token_ids += token_ids
            request.block_ids += own

    @precondition(lambda self: self.running)
    @rule(data=st.data(), comes_back=st.booleans())
    def leave(self, data, comes_back):
        """For good, or preempted: then with the same tokens and the same cursor, reset."""
        request = data.draw(st.sampled_from(self.running))
        self.free(request.block_ids)
        self.running.remove(request)
        own = self.room_for(len(request.block_ids)) if comes_back else None
        if own is not None:
            request.cursor.reset()
            again = Running(request.token_ids, request.salt, own, 0, request.cursor)
            self.running.append(again)

    @rule(num_blocks=st.sampled_from([1, 1, 2, 2, 3, 3, 4, 0, -1, None]))
    def give_up(self, num_blocks):
        """Evicts, or clears the map: rarely, since a life without one is dull."""
        if num_blocks is not None:
            self.evict_and_compare(num_blocks)
            return
        idle = {entry.block_id for entry in self.published.values() if not self.num_holders(entry.block_id)}
        freed = self.map.clear()
        assert sorted(freed) == sorted(idle)
        for block_id in idle:
            del self.content_by_block[block_id]
        self.published.clear()

    def teardown(self):
        """At the end everything can be had back, each block in its turn."""
        if hasattr(self, "map"):
            for request in self.running:
                self.free(request.block_ids)
            self.running.clear()
            self.evict_and_compare(self.pool.num_blocks)
            assert self.pool.num_free_blocks == self.pool.num_blocks
            self.map.check_integrity()

    @invariant()
    def accounts_add_up(self):
        if not hasattr(self, "map"):
            return
        self.pool.check_integrity()
        self.map.check_integrity()
        pinned = [entry.block_id for entry in self.published.values()]
        assert self.map.num_pinned_blocks == len(pinned)
        held = {block_id: self.content_by_block[block_id][1][-self.block_size :] for block_id in pinned}
        assert self.map.token_ids_by_block == held
        assert self.map.num_evictable_blocks == sum(not self.num_holders(block_id) for block_id in pinned)
        for block_id in range(self.pool.num_blocks):
            assert self.pool.ref_count(block_id) == self.num_holders(block_id) + (block_id in pinned)


TestPrefixMapLife = PrefixMapLife.TestCase
TestPrefixMapLife.settings = settings(max_examples=settings().max_examples * 2 // 3, stateful_step_count=25)


@pytest.fixture
def pool():
    return BlockPool(12)


def publish(prefix_map, pool, token_ids, salt=None, *, block_size=2):
    """A request that computes everything and leaves; gives the blocks it had."""
    block_ids = pool.allocate(BlockTable.blocks_for(len(token_ids), block_size))
    prefix_map.publish(token_ids, block_ids, len(token_ids), salt)
    pool.release(block_ids)
    return block_ids


def test_match_gives_the_longest_chain(pool):
    prefix_map = PrefixMap(pool, 2)
    block_ids = publish(prefix_map, pool, [1, 2, 3, 4, 5])
    assert prefix_map.match([1, 2, 3, 4, 5], None, 5) == (block_ids[:2], 4)
    assert prefix_map.match([1, 2, 9, 9], None, 4) == (block_ids[:1], 2)
    assert prefix_map.match([9, 2, 3, 4], None, 4) == ([], 0)


def test_block_after_other_tokens_is_another_block(pool):
    """Keys and values of equal tokens differ when other tokens came before."""
    prefix_map = PrefixMap(pool, 2)
    publish(prefix_map, pool, [1, 2, 3, 4])
    assert prefix_map.match([3, 4], None, 2) == ([], 0)
    assert prefix_map.match([5, 6, 3, 4], None, 4) == ([], 0)


def test_last_block_may_be_covered_in_part(pool):
    """As with a prompt that is published whole and of which the last token must run again."""
    prefix_map = PrefixMap(pool, 4)
    block_ids = publish(prefix_map, pool, [1, 2, 3, 4, 5, 6, 7, 8], block_size=4)
    assert prefix_map.match([1, 2, 3, 4, 5, 6, 7, 8], None, 7) == (block_ids, 7)
    assert prefix_map.match([1, 2, 3, 4, 5, 6], None, 5) == (block_ids, 5)
    assert prefix_map.match([1, 2, 3, 4, 5, 6], None, 6) == (block_ids, 6)
    assert prefix_map.match([1, 2, 3, 4, 5, 9], None, 5) == (block_ids[:1], 4), "a known token differs"
    assert prefix_map.match([1, 2, 3, 4, 5, 6, 7, 8], None, 4) == (block_ids[:1], 4), "no block that covers nothing"
    assert prefix_map.match([1, 2, 3, 4], None, 0) == ([], 0)


def test_only_full_computed_blocks_are_published(pool):
    prefix_map = PrefixMap(pool, 2)
    block_ids = pool.allocate(3)
    prefix_map.publish([1, 2, 3, 4, 5, 6], block_ids, 5, None)
    assert prefix_map.num_pinned_blocks == 2
    assert prefix_map.match([1, 2, 3, 4, 5, 6], None, 6) == (block_ids[:2], 4)
    prefix_map.publish([1, 2], [], 1, None)
    assert prefix_map.num_pinned_blocks == 2


def test_salts_and_model_keys_share_nothing(pool):
    prefix_map = PrefixMap(pool, 2, "one")
    publish(prefix_map, pool, [1, 2], "pepper")
    for salt in (None, "", "pepper "):
        assert prefix_map.match([1, 2], salt, 2) == ([], 0)
    nothing = publish(prefix_map, pool, [1, 2], None)
    empty = publish(prefix_map, pool, [1, 2], "")
    assert prefix_map.match([1, 2], None, 2) == (nothing, 2)
    assert prefix_map.match([1, 2], "", 2) == (empty, 2)
    assert nothing != empty
    assert set(prefix_map._tree._roots) == {("one", "pepper"), ("one", None), ("one", "")}


@pytest.mark.parametrize("name", HASHES)
def test_hash_collisions_change_nothing(pool, name):
    prefix_map = PrefixMap(pool, 2, hash_function=HASHES[name])
    first = publish(prefix_map, pool, [1, 2, 3, 4])
    second = publish(prefix_map, pool, [2, 1, 3, 4])
    salted = publish(prefix_map, pool, [1, 2, 3, 4], "salt")
    assert prefix_map.match([1, 2, 3, 4], None, 4) == (first, 4)
    assert prefix_map.match([2, 1, 3, 4], None, 4) == (second, 4)
    assert prefix_map.match([1, 2, 3, 4], "salt", 4) == (salted, 4)
    assert prefix_map.match([3, 4], None, 2) == ([], 0)
    assert len(prefix_map.evict(6)) == 6
    assert prefix_map.match([1, 2, 3, 4], None, 4) == ([], 0)


def test_equal_block_that_comes_second_stays_unpublished(pool):
    prefix_map = PrefixMap(pool, 2)
    first, second = pool.allocate(1), pool.allocate(2)
    prefix_map.publish([1, 2], first, 2, None)
    prefix_map.publish([1, 2, 3, 4], second, 4, None)
    assert prefix_map.match([1, 2, 3, 4], None, 4) == ([first[0], second[1]], 4)
    assert not pool.is_pinned(second[0])


def test_least_recently_used_is_evicted_first_and_a_match_is_a_use(pool):
    prefix_map = PrefixMap(pool, 2)
    (first,), (second,), (third,) = (publish(prefix_map, pool, [token_id, 0]) for token_id in (1, 2, 3))
    prefix_map.match([1, 0], None, 2)
    assert prefix_map.evict(2) == [second, third]
    assert prefix_map.evict(2) == [first]


def test_publishing_what_is_there_is_a_use(pool):
    prefix_map = PrefixMap(pool, 2)
    (first,), (second,) = (publish(prefix_map, pool, [token_id, 0]) for token_id in (1, 2))
    publish(prefix_map, pool, [1, 0])
    assert prefix_map.evict(2) == [second, first]


def test_child_is_evicted_before_its_parent(pool):
    """Also where the parent was used longer ago: nobody could reach the child without it."""
    prefix_map = PrefixMap(pool, 2)
    (parent,) = publish(prefix_map, pool, [1, 2])
    (other,) = publish(prefix_map, pool, [7, 7])
    _, child = publish(prefix_map, pool, [1, 2, 3, 4])
    assert prefix_map.evict(1) == [other], "the parent is older and has a child"
    assert prefix_map.evict(2) == [child, parent]


def test_tail_of_a_request_is_older_than_its_head(pool):
    prefix_map = PrefixMap(pool, 2)
    long = publish(prefix_map, pool, [1, 2, 3, 4, 5, 6])
    short = publish(prefix_map, pool, [9, 9])
    prefix_map.match([1, 2, 3, 4], None, 4)
    assert prefix_map.evict(4) == [long[2], short[0], long[1], long[0]]


def test_held_block_is_not_evicted(pool):
    prefix_map = PrefixMap(pool, 2)
    (held,), (idle,) = (publish(prefix_map, pool, [token_id, 0]) for token_id in (1, 2))
    pool.hold([held])
    assert prefix_map.num_evictable_blocks == 1
    assert prefix_map.evict(5) == [idle]
    assert prefix_map.match([1, 0], None, 2) == ([held], 2)
    pool.release([held])
    assert prefix_map.evict(5) == [held]


def test_idle_parent_under_a_held_child_can_be_had_back(pool):
    """Two requests compute one prompt; the first leaves, the second has gone further and holds blocks of its own."""
    prefix_map = PrefixMap(pool, 2)
    cursor, first, second = PrefixCursor(), pool.allocate(1), pool.allocate(3)
    prefix_map.publish([1, 2], first, 2, None)
    prefix_map.publish([1, 2, 3, 4, 5], second, 4, None, cursor)
    pool.release(first)
    assert prefix_map.num_evictable_blocks == 1
    assert prefix_map.evict(1) == first
    assert pool.ref_count(second[1]) == 1, "unpublished, and still the request's"
    prefix_map.publish([1, 2, 3, 4, 5, 6], second, 6, None, cursor)
    assert prefix_map.match([1, 2, 3, 4, 5, 6], None, 6) == (second, 6), "published again, from the first block on"


def test_only_children_that_stand_over_an_idle_block_go_unpublished(pool):
    """The other request's block was used longest ago, but giving up its pin would free nothing."""
    prefix_map = PrefixMap(pool, 2)
    older, first, second = pool.allocate(1), pool.allocate(1), pool.allocate(2)
    prefix_map.publish([9, 9], older, 2, None)
    prefix_map.publish([1, 2], first, 2, None)
    prefix_map.publish([1, 2, 3, 4], second, 4, None)
    pool.release(first)
    assert prefix_map.evict(1) == first
    assert prefix_map.match([9, 9], None, 2) == (older, 2)


def test_cursor_makes_a_long_request_cheap(pool):
    """Each block is hashed once, however often the request is published; the map has two looks at a new one."""
    calls = []

    def counting(parent_hash, token_ids):
        calls.append(token_ids)
        return chained_hash(parent_hash, token_ids)

    prefix_map, cursor = PrefixMap(pool, 2, hash_function=counting), PrefixCursor()
    block_ids, token_ids = pool.allocate(10), list(range(20))
    for num_tokens in range(21):
        prefix_map.publish(token_ids, block_ids, num_tokens, None, cursor)
    assert len(calls) <= 2 * 10
    assert cursor.num_blocks == 10
    assert prefix_map.match(token_ids, None, 20) == (block_ids, 20)


def test_clear_gives_up_every_pin(pool):
    prefix_map, cursor = PrefixMap(pool, 2), PrefixCursor()
    idle = publish(prefix_map, pool, [1, 2, 3, 4])
    held = pool.allocate(1)
    prefix_map.publish([5, 6], held, 2, None, cursor)
    assert sorted(prefix_map.clear()) == sorted(idle)
    assert prefix_map.num_pinned_blocks == 0
    assert prefix_map.match([5, 6], None, 2) == ([], 0)
    prefix_map.publish([5, 6], held, 2, None, cursor)
    assert prefix_map.match([5, 6], None, 2) == (held, 2)


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(3, 2), (4, 1)])
def test_publish_refuses_more_computed_tokens_than_there_can_be(pool, num_tokens, num_blocks):
    prefix_map = PrefixMap(pool, 2)
    with pytest.raises(InvariantError, match="4 tokens in blocks of 2 cannot be computed"):
        prefix_map.publish([1] * num_tokens, pool.allocate(num_blocks), 4, None)
    assert prefix_map.num_pinned_blocks == 0


def test_publish_refuses_a_block_that_nobody_holds(pool):
    prefix_map = PrefixMap(pool, 2)
    with pytest.raises(BlockAccountingError, match="block 3 cannot be pinned; it has 0 references"):
        prefix_map.publish([1, 2], [3], 2, None)
    prefix_map.check_integrity()


def test_publish_refuses_a_shared_block_with_other_content(pool):
    """Somebody wrote in a block without copying it first; what went before stays published."""
    prefix_map = PrefixMap(pool, 2)
    first, second = pool.allocate(1), pool.allocate(1)
    prefix_map.publish([1, 2], first, 2, None)
    pool.hold(first)
    with pytest.raises(BlockAccountingError, match="is pinned"):
        prefix_map.publish([5, 6, 1, 2], [second[0], first[0]], 4, None)
    prefix_map.check_integrity()
    assert prefix_map.match([5, 6], None, 2) == (second, 2)


def test_check_integrity_sees_a_node_without_a_pin(pool):
    prefix_map = PrefixMap(pool, 2)
    (block_id,) = publish(prefix_map, pool, [1, 2])
    pool.hold([block_id])
    pool.unpin(block_id)
    with pytest.raises(BlockAccountingError, match=r"are published and \[\] are pinned"):
        prefix_map.check_integrity()

"""The paged cache, beside a plain model (for each request the list of its tokens) and beside the continuous cache."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from refinfer import load_model
from refinfer.attention_layout import KEY_TILE
from refinfer.cache import BlockPool, BlockTable, ContinuousCache, PagedCache, PagedPart
from refinfer.errors import ConfigError, InvariantError, ShapeError
from refinfer.interfaces import AttentionView
from refinfer.model.packed import PackedAttentionView

READERS = ("gather", "blocks")
VOCAB_SIZE = 29


class Sharer:
    """A request of the machine: its tokens by name, and where they are."""

    def __init__(self, block_size):
        self.tokens: list[int] = []
        self.table = BlockTable(block_size)
        self.host_blocks = None


class PagedCacheLife(RuleBasedStateMachine):
    """Requests run in company, share blocks, copy before they write, move to the host and back, and leave.

    The model is each request's tokens; after every step each running request's dense keys and values are those of
    its own tokens, whoever has which block.
    """

    def __init__(self, toolbox):
        super().__init__()
        self.toolbox = toolbox
        self.next_name = 1

    @initialize(block_size=st.sampled_from([1, 2, 3, 16, 64]), num_blocks=st.integers(3, 40), seed=st.integers(0, 5))
    def start(self, block_size, num_blocks, seed):
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, shuffle_seed=seed)
        self.cache = PagedCache(self.toolbox.config, torch.float64, num_blocks=num_blocks, block_size=block_size)
        self.requests = [Sharer(block_size) for _ in range(3)]

    def names(self, num_tokens):
        """Names for new tokens: no two writes of a life have the same."""
        self.next_name += num_tokens
        return list(range(self.next_name - num_tokens, self.next_name))

    def make_room(self, request, num_tokens):
        """Gives the request blocks of its own for its next tokens; tells whether there were enough."""
        size, num_computed = self.block_size, len(request.tokens)
        num_new = BlockTable.blocks_for(num_computed + num_tokens, size) - len(request.table.block_ids)
        written = range(
            num_computed // size,
            min(len(request.table.block_ids), BlockTable.blocks_for(num_computed + num_tokens, size)),
        )
        shared = [index for index in written if self.pool.ref_count(request.table.block_ids[index]) > 1]
        if max(0, num_new) + len(shared) > self.pool.num_free_blocks:
            return False
        pairs = []
        for index in shared:
            (own,) = self.pool.allocate(1)
            pairs.append((request.table.block_ids[index], own))
            request.table.replace(index, own)
        self.cache.copy_blocks(pairs)
        self.pool.release([source for source, _ in pairs])
        request.table.append(self.pool.allocate(max(0, num_new)))
        return True

    def run(self, plan, num_layers, reader):
        """Runs the new tokens of some requests, and checks what the attention core is given against the model."""
        tools = self.toolbox
        parts = [PagedPart(tuple(request.table.block_ids), len(request.tokens), len(names)) for request, names in plan]
        view = self.cache.view(parts, reader)
        packed = [name for _, names in plan for name in names]
        for layer_index in range(num_layers):
            probe = tools.Probe()
            output = tools.attend(view, packed, layer_index, probe)
            assert torch.equal(output, -tools.vectors(packed, layer_index, tools.num_heads, "query"))
            for (request, names), row in zip(plan, tools.rows_by_request(view, probe.calls), strict=True):
                expected = request.tokens + names
                assert (row.num_queries, row.num_keys) == (len(names), len(expected))
                for given_tensor, kind in ((row.keys, "key"), (row.values, "value")):
                    dense = tools.vectors(expected, layer_index, tools.num_kv_heads, kind).transpose(0, 1)
                    assert torch.equal(given_tensor[:, : len(expected)], dense)
                    assert not given_tensor[:, len(expected) :].any()
                    assert given_tensor.shape[1] == -(-len(expected) // KEY_TILE) * KEY_TILE

    @rule(data=st.data(), reader=st.sampled_from(READERS), num_layers=st.sampled_from([2, 2, 1, 0]))
    def step(self, data, reader, num_layers):
        """Some requests run; all of what they ran stands, or a part of it, or the pass fails on its way."""
        plan = []
        for request in self.requests:
            num_tokens = data.draw(st.sampled_from([1, 2, 5, KEY_TILE - 1, KEY_TILE + 1, 0]))
            if num_tokens and request.host_blocks is None and self.make_room(request, num_tokens):
                plan.append((request, self.names(num_tokens)))
        if not plan:
            return
        self.run(plan, num_layers, reader)
        if num_layers == self.toolbox.config.num_layers:
            for request, names in plan:
                request.tokens += names[: data.draw(st.integers(0, len(names)))]

    @precondition(lambda self: any(request.tokens for request in self.requests))
    @rule(data=st.data())
    def share(self, data):
        """One request takes over all blocks of another, the last one perhaps half full."""
        source, target = data.draw(st.permutations(self.requests))[:2]
        if source.host_blocks is None and target.host_blocks is None:
            self.pool.hold(source.table.block_ids)
            self.cache.forget(self.pool.release(target.table.clear()))
            target.table, target.tokens = source.table.copy(), list(source.tokens)

    @rule(data=st.data())
    def leave(self, data):
        request = data.draw(st.sampled_from(self.requests))
        self.cache.forget(self.pool.release(request.table.clear()))
        request.tokens, request.host_blocks = [], None

    @rule(data=st.data())
    def swap(self, data):
        """To the host, or back to other blocks."""
        request = data.draw(st.sampled_from(self.requests))
        if request.host_blocks is None:
            request.host_blocks = self.cache.swap_out(request.table.block_ids)
            self.cache.forget(self.pool.release(request.table.clear()))
        elif request.host_blocks.num_blocks <= self.pool.num_free_blocks:
            request.table.append(self.pool.allocate(request.host_blocks.num_blocks))
            self.cache.swap_in(request.host_blocks, request.table.block_ids)
            request.host_blocks = None

    @invariant()
    def free_blocks_hold_nan_and_tokens_what_they_should(self):
        if not hasattr(self, "cache"):
            return
        self.pool.check_integrity()
        tools, (keys, values) = self.toolbox, self.cache._blocks()
        free = [block_id for block_id in range(self.pool.num_blocks) if not self.pool.ref_count(block_id)]
        assert keys[:, free].isnan().all()
        assert values[:, free].isnan().all()
        for request in self.requests:
            if request.host_blocks is None and request.tokens:
                slots = request.table.slots(0, len(request.tokens))
                for storage, kind in ((keys, "key"), (values, "value")):
                    expected = tools.vectors(request.tokens, 1, tools.num_kv_heads, kind)
                    assert torch.equal(storage[1].flatten(0, 1)[slots], expected)


def test_paged_cache_lives_as_its_model(toolbox):
    life = settings(deadline=None, max_examples=settings().max_examples // 2, stateful_step_count=20)
    run_state_machine_as_test(partial(PagedCacheLife, toolbox), settings=life)  # type: ignore[arg-type]  # a factory will do


@pytest.fixture(scope="module")
def model_of():
    """A tiny sensitive model in each dtype and manner of numerics, loaded once."""
    spec = CheckpointSpec(hidden_size=16, intermediate_size=24, head_dim=8, vocab_size=VOCAB_SIZE)
    models = {}

    def load(dtype, batch_invariant):
        if (dtype, batch_invariant) not in models:
            models[dtype, batch_invariant] = load_model(
                cached_checkpoint(spec), dtype=dtype, batch_invariant=batch_invariant
            )
        return models[dtype, batch_invariant]

    return load


def run_steps(model, prompts, steps, view_of):
    """Runs prompts in the chunks of a plan; gives the logits of each step."""
    num_computed, logits = [0] * len(prompts), []
    for counts in steps:
        rows = [row for row, count in enumerate(counts) if count]
        ranges = [range(num_computed[row], num_computed[row] + counts[row]) for row in rows]
        input_ids = [prompts[row][place] for row, places in zip(rows, ranges, strict=True) for place in places]
        position_ids = [place for places in ranges for place in places]
        view = view_of(rows, num_computed, counts)
        logits.append(model.forward(torch.tensor(input_ids), torch.tensor(position_ids), view))
        for row in rows:
            num_computed[row] += counts[row]
    return logits


def continuous_logits(model, prompts, steps):
    caches = [ContinuousCache(model.config, model.dtype) for _ in prompts]

    def view_of(rows, num_computed, counts):
        for row in rows:
            caches[row].advance(num_computed[row] - caches[row].num_computed_tokens)
        return PackedAttentionView(
            [caches[row].attention_view(counts[row]) for row in rows], [counts[row] for row in rows]
        )

    return run_steps(model, prompts, steps, view_of)


def paged_logits(model, prompts, steps, reader, *, block_size, others):
    """With blocks in random places, among blocks that hold something else."""
    tables_sizes = [BlockTable.blocks_for(len(prompt), block_size) for prompt in prompts]
    pool = BlockPool(sum(tables_sizes) + 3, shuffle_seed=block_size)
    cache = PagedCache(model.config, model.dtype, num_blocks=pool.num_blocks, block_size=block_size)
    for blocks in cache._blocks():
        blocks.fill_(others)
    tables = [tuple(pool.allocate(num_blocks)) for num_blocks in tables_sizes]

    def view_of(rows, num_computed, counts):
        return cache.view([PagedPart(tables[row], num_computed[row], counts[row]) for row in rows], reader)

    return run_steps(model, prompts, steps, view_of)


@st.composite
def chunked_prompts(draw):
    """Prompts of random tokens, and how many tokens of each run in each step."""
    lengths = draw(st.lists(st.sampled_from([1, 2, 7, KEY_TILE, KEY_TILE + 1, 130]), min_size=1, max_size=3))
    random = draw(st.randoms(use_true_random=False))
    prompts = [[random.randrange(VOCAB_SIZE) for _ in range(length)] for length in lengths]
    steps, left = [], list(lengths)
    while any(left):
        counts = [min(count, draw(st.sampled_from([200, KEY_TILE, 3, 1, 0]))) for count in left]
        if any(counts):
            steps.append(counts)
            left = [count - ran for count, ran in zip(left, counts, strict=True)]
    return prompts, steps


@settings(max_examples=max(5, settings().max_examples // 5))
@given(
    case=chunked_prompts(),
    block_size=st.integers(1, 64),
    others=st.sampled_from([float("nan"), float("inf"), 1e4]),
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
)
@pytest.mark.parametrize("batch_invariant", [True, False], ids=["invariant", "plain"])
def test_paged_equals_continuous_logits(model_of, batch_invariant, case, block_size, others, dtype):
    """In every bit, for both readers and in both manners, since attention is called on the same rectangles."""
    model, (prompts, steps) = model_of(dtype, batch_invariant), case
    expected = continuous_logits(model, prompts, steps)
    for reader in READERS:
        found = paged_logits(model, prompts, steps, reader, block_size=block_size, others=others)
        for own, other in zip(found, expected, strict=True):
            assert torch.equal(own, other)


@pytest.fixture
def cache(toolbox):
    return PagedCache(toolbox.config, torch.float64, num_blocks=6, block_size=4)


@pytest.mark.parametrize("reader", READERS)
def test_wrong_block_table_gives_nan_and_no_plausible_logits(model_of, reader):
    model = model_of("float32", batch_invariant=True)
    cache = PagedCache(model.config, model.dtype, num_blocks=4, block_size=4)
    model.forward(torch.arange(6), torch.arange(6), cache.view([PagedPart((2, 0), 0, 6)], reader))
    wrong = cache.view([PagedPart((3, 0), 6, 1)], reader)
    assert model.forward(torch.tensor([7]), torch.tensor([6]), wrong).isnan().all()
    right = cache.view([PagedPart((2, 0), 6, 1)], reader)
    assert model.forward(torch.tensor([7]), torch.tensor([6]), right).isfinite().all()


@pytest.mark.parametrize("reader", READERS)
def test_freed_block_reads_as_nan(model_of, reader):
    model = model_of("float32", batch_invariant=True)
    cache = PagedCache(model.config, model.dtype, num_blocks=4, block_size=4)
    model.forward(torch.arange(6), torch.arange(6), cache.view([PagedPart((2, 0), 0, 6)], reader))
    cache.forget([2])
    stale = cache.view([PagedPart((2, 0), 6, 1)], reader)
    assert model.forward(torch.tensor([7]), torch.tensor([6]), stale).isnan().all()


@pytest.mark.parametrize("reader", READERS)
def test_layer_that_is_left_out_shows_as_nan(toolbox, cache, reader):
    """Also where a step that failed had written before."""
    for num_layers in (2, 1):
        view = cache.view([PagedPart((1,), 0, 2)], reader)
        for layer_index in range(num_layers):
            toolbox.attend(view, [1, 2], layer_index, toolbox.Probe())
    probe = toolbox.Probe()
    toolbox.attend(cache.view([PagedPart((1,), 2, 1)], reader), [3], 1, probe)
    assert probe.calls[0].keys.isnan().all(dim=3)[0, 0].nonzero().tolist() == [[0], [1]]
    assert probe.calls[0].values.isnan().all(dim=3)[0, 0].nonzero().tolist() == [[0], [1]]


def test_view_is_what_the_model_asks_for(cache):
    assert isinstance(cache.view([PagedPart((0,), 0, 1)], "blocks"), AttentionView)
    assert (cache.num_blocks, cache.block_size) == (6, 4)


def test_new_cache_holds_nan_and_one_without_poison_forgets_nothing(toolbox):
    poisoned, plain = (
        PagedCache(toolbox.config, torch.float64, num_blocks=2, block_size=3, poison=poison) for poison in (True, False)
    )
    assert all(blocks.isnan().all() for blocks in poisoned._blocks())
    toolbox.attend(plain.view([PagedPart((1,), 0, 2)], "blocks"), [1, 2], 0, toolbox.Probe())
    plain.forget([0, 1])
    assert not any(blocks.isnan().any() for blocks in plain._blocks())
    expected = toolbox.vectors([1, 2], 0, toolbox.num_kv_heads, "key")
    assert torch.equal(plain._blocks()[0][0, 1, :2], expected)


def filled(cache):
    """A cache whose every number differs from every other; gives copies of its blocks."""
    for blocks in cache._blocks():
        blocks.copy_(torch.randn(blocks.shape, dtype=torch.float64))
    return [blocks.clone() for blocks in cache._blocks()]


def test_copy_blocks_reads_every_source_before_it_writes(cache):
    before = filled(cache)
    cache.copy_blocks([(0, 1), (1, 2), (0, 4)])
    for blocks, old in zip(cache._blocks(), before, strict=True):
        assert torch.equal(blocks, old[:, [0, 0, 1, 3, 0, 5]])


def test_copy_on_write_leaves_the_other_holder_its_tokens(toolbox, cache):
    probe = toolbox.Probe()
    for layer_index in range(2):
        toolbox.attend(cache.view([PagedPart((3,), 0, 3)], "blocks"), [1, 2, 3], layer_index, probe)
    cache.copy_blocks([(3, 5)])
    toolbox.attend(cache.view([PagedPart((5,), 2, 1)], "blocks"), [9], 1, probe)
    toolbox.attend(cache.view([PagedPart((3,), 3, 1)], "blocks"), [4], 1, probe)
    for call, names in zip(probe.calls[-2:], ([1, 2, 9], [1, 2, 3, 4]), strict=True):
        expected = toolbox.vectors(names, 1, toolbox.num_kv_heads, "value").transpose(0, 1)
        assert torch.equal(call.values[0, :, : len(names)], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_swapped_blocks_come_back_in_every_bit(toolbox, dtype):
    """NaN is compared too, so the comparison is of bytes."""
    cache = PagedCache(toolbox.config, dtype, num_blocks=6, block_size=4)
    for blocks in cache._blocks():
        blocks[:, :4] = torch.randn(blocks[:, :4].shape, dtype=dtype)
    before = [blocks[:, [2, 5, 0]].clone() for blocks in cache._blocks()]
    saved = cache.swap_out([2, 5, 0])
    assert saved.num_blocks == 3
    cache.forget(range(6))
    cache.swap_in(saved, [1, 0, 4])
    for blocks, old in zip(cache._blocks(), before, strict=True):
        assert torch.equal(blocks[:, [1, 0, 4]].contiguous().view(torch.uint8), old.view(torch.uint8))
        assert blocks[:, [2, 3, 5]].isnan().all(), "and nowhere else"


def test_moves_of_a_few_blocks_need_memory_for_a_few(toolbox):
    """Whatever takes a copy of the whole cache on the way slows every copy on write and every swap down."""
    num_blocks = 4096
    cache = PagedCache(toolbox.config, torch.float32, num_blocks=num_blocks, block_size=4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        cache.copy_blocks([(1, 2), (7, 9)])
        cache.swap_in(cache.swap_out([1, 9]), [3, 5])
        cache.forget([1, 2])
    one_block = 4 * toolbox.config.num_layers * toolbox.config.num_kv_heads * toolbox.config.head_dim * 4
    assert 2 * one_block <= max(event.self_cpu_memory_usage for event in profile.events()) < 100 * one_block


def test_moves_of_no_block_change_nothing(cache):
    before = filled(cache)
    cache.copy_blocks([])
    cache.forget([])
    cache.swap_in(cache.swap_out([]), [])
    assert all(torch.equal(blocks, old) for blocks, old in zip(cache._blocks(), before, strict=True))


@pytest.mark.parametrize("block_id", [-1, 6])
def test_cache_refuses_blocks_that_are_not_there(cache, block_id):
    saved, before = cache.swap_out([0]), filled(cache)
    for move in (
        lambda: cache.forget([0, block_id]),
        lambda: cache.swap_out([block_id]),
        lambda: cache.swap_in(saved, [block_id]),
        lambda: cache.copy_blocks([(0, block_id)]),
        lambda: cache.copy_blocks([(block_id, 0)]),
        lambda: cache.view([PagedPart((block_id,), 0, 1)], "blocks"),
    ):
        with pytest.raises(InvariantError, match="are not all there; the cache has 0 to 5"):
            move()
    assert all(torch.equal(blocks, old) for blocks, old in zip(cache._blocks(), before, strict=True))


def test_copy_blocks_refuses_a_target_that_stands_twice(cache):
    with pytest.raises(InvariantError, match=r"one block would be copied to twice: \[2, 2\]"):
        cache.copy_blocks([(0, 2), (1, 2)])


def test_swap_in_refuses_another_number_of_blocks(cache):
    with pytest.raises(InvariantError, match="2 blocks cannot be put back in 1; give as many"):
        cache.swap_in(cache.swap_out([0, 1]), [2])


def test_view_refuses_a_table_that_is_too_short(cache):
    with pytest.raises(InvariantError, match="5 tokens do not fit in 1 blocks of 4; append blocks"):
        cache.view([PagedPart((0,), 3, 2)], "gather")


@pytest.mark.parametrize(
    "parts",
    [
        [PagedPart((0, 1), 5, 1), PagedPart((2, 1), 5, 1)],
        [PagedPart((0, 1), 5, 1), PagedPart((0, 1, 2), 8, 1)],
        [PagedPart((1, 1), 4, 1)],
    ],
    ids=["both write", "one writes and one reads", "twice in one table"],
)
def test_view_refuses_to_write_a_block_that_stands_in_two_places(cache, parts):
    with pytest.raises(InvariantError, match="block 1 would be written and stands in 2 places; copy it"):
        cache.view(parts, "blocks")


def test_view_lets_requests_read_the_same_blocks(toolbox, cache):
    probe = toolbox.Probe()
    toolbox.attend(cache.view([PagedPart((0,), 0, 4)], "blocks"), [1, 2, 3, 4], 0, probe)
    parts = [PagedPart((0, 1, 3), 4, 1), PagedPart((0, 2, 3), 4, 1)]
    view = cache.view(parts, "blocks")
    toolbox.attend(view, [5, 6], 0, probe)
    for row, name in zip(toolbox.rows_by_request(view, probe.calls[1:]), (5, 6), strict=True):
        expected = toolbox.vectors([1, 2, 3, 4, name], 0, toolbox.num_kv_heads, "key").transpose(0, 1)
        assert torch.equal(row.keys[:, :5], expected)


def test_view_refuses_an_unknown_reader_and_no_request(cache):
    with pytest.raises(ConfigError, match="reader 'other' is unknown; choose one of gather, blocks"):
        cache.view([PagedPart((0,), 0, 1)], "other")
    with pytest.raises(ShapeError, match="a view of no request"):
        cache.view([], "gather")


def test_one_block_of_one_place_is_a_cache(toolbox):
    cache = PagedCache(toolbox.config, torch.float64, num_blocks=1, block_size=1)
    probe = toolbox.Probe()
    toolbox.attend(cache.view([PagedPart((0,), 0, 1)], "blocks"), [1], 0, probe)
    assert torch.equal(probe.calls[0].keys[0, :, :1].transpose(0, 1), toolbox.vectors([1], 0, 2, "key"))


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 4), (4, 0)])
def test_paged_cache_refuses_to_have_no_place(toolbox, num_blocks, block_size):
    with pytest.raises(ConfigError, match=f"{num_blocks} blocks of {block_size} places cannot hold a token"):
        PagedCache(toolbox.config, torch.float64, num_blocks=num_blocks, block_size=block_size)

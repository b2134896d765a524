"""Which parts belong to a cache, and how many blocks there are."""

import pytest

from refinfer.config import EngineConfig
from refinfer.engine.assembly import block_space, make_scheduler
from refinfer.errors import ConfigError
from refinfer.scheduler import ContinuousScheduler, StaticScheduler


@pytest.mark.parametrize(
    ("cache", "kind"),
    [
        ("none", StaticScheduler),
        ("static", StaticScheduler),
        ("continuous", ContinuousScheduler),
        ("paged", ContinuousScheduler),
    ],
)
def test_make_scheduler_makes_the_scheduler_of_each_cache(cache, kind):
    assert type(make_scheduler(EngineConfig(cache=cache), None)) is kind


def test_pool_has_no_more_blocks_than_the_largest_batch_can_use(model):
    space = block_space(model, EngineConfig(max_num_seqs=3, block_size=4), 10)
    assert space.pool.num_blocks == 3 * 3


def test_pool_has_as_many_blocks_as_fit_its_memory(model):
    shape = model.config
    bytes_per_block = 4 * 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * 8
    config = EngineConfig(block_size=4, kv_cache_memory=5 * bytes_per_block + 1)
    assert block_space(model, config, 10).pool.num_blocks == 5


@pytest.mark.parametrize(("num_blocks", "is_enough"), [(2, False), (3, True)])
def test_pool_that_cannot_hold_the_longest_request_is_refused(model, num_blocks, is_enough):
    config = EngineConfig(block_size=4, num_blocks=num_blocks)
    if is_enough:
        assert block_space(model, config, 10).pool.num_blocks == 3
        return
    with pytest.raises(ConfigError, match="2 blocks of 4 tokens cannot hold one request of max_model_len 10"):
        block_space(model, config, 10)


def test_host_memory_takes_as_many_blocks_as_the_pool_unless_told_otherwise(model):
    assert block_space(model, EngineConfig(num_blocks=7), 10).num_swap_blocks == 7
    assert block_space(model, EngineConfig(num_blocks=7, num_swap_blocks=0), 10).num_swap_blocks == 0
    assert block_space(model, EngineConfig(num_blocks=7, enable_prefix_caching=False), 10).prefix is None

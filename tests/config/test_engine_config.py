"""Settings of a run: what is refused, by name, and that its good neighbour is not."""

import numpy as np
import pytest

from refinfer.config.engine_config import (
    CACHES,
    DTYPES,
    EngineConfig,
    engine_config,
)
from refinfer.errors import ConfigError


@pytest.mark.parametrize("cache", CACHES)
def test_engine_config_takes_every_cache(cache):
    assert EngineConfig(cache=cache).cache == cache


@pytest.mark.parametrize("dtype", DTYPES)
def test_engine_config_takes_every_dtype(dtype):
    assert EngineConfig(dtype=dtype).dtype == dtype


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("cache", "dynamic", "choose one of none, static, continuous, paged"),
        ("scheduling", "fair", "choose one of running_first, prefill_first"),
        ("preemption", "kill", "choose one of recompute, swap"),
        ("paged_attention", "flash", "choose one of gather, blocks"),
        ("block_size", 0, "at least 1"),
        ("num_blocks", 0, "at least 1"),
        ("max_num_batched_tokens", 0, "at least 1"),
        ("num_swap_blocks", -1, "at least 0"),
        ("cache", "", "choose one of"),
        ("dtype", "float8", "choose one of auto, float32"),
        ("dtype", "torch.float32", "choose one of auto, float32"),
        ("device", "cuda", "choose one of cpu"),
        ("max_num_seqs", 0, "at least 1"),
        ("max_num_seqs", -3, "at least 1"),
        ("max_num_seqs", True, "at least 1"),
        ("max_model_len", 0, "at least 1"),
        ("max_model_len", True, "at least 1"),
    ],
)
def test_engine_config_refuses_a_value_that_cannot_work(name, value, way_out):
    with pytest.raises(ConfigError) as caught:
        engine_config(**{name: value})
    message = str(caught.value)
    assert name in message
    assert repr(value) in message
    assert way_out in message


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize("value", ["false", 0, 1, None])
def test_engine_config_refuses_a_manner_that_is_neither_true_nor_false(value):
    with pytest.raises(ConfigError, match=f"batch_invariant is {value!r}; it must be True or False"):
        engine_config(batch_invariant=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_num_seqs", 1), ("max_model_len", 1), ("max_model_len", None), ("batch_invariant", False)],
)
def test_engine_config_takes_the_smallest_value(name, value):
    assert getattr(engine_config(**{name: value}), name) == value


def test_engine_config_refuses_a_word_about_no_length():
    with pytest.raises(ConfigError, match="allow_long_max_model_len says nothing without max_model_len; give both"):
        EngineConfig(allow_long_max_model_len=True)
    assert EngineConfig(allow_long_max_model_len=True, max_model_len=3).allow_long_max_model_len


def test_engine_config_is_batch_invariant_unless_told_otherwise():
    assert EngineConfig().batch_invariant is True
    assert EngineConfig(batch_invariant=False).batch_invariant is False


def test_engine_config_refuses_a_number_of_guesses_where_nothing_guesses():
    with pytest.raises(ConfigError, match="num_speculative_tokens=4 says nothing without speculative; leave it out"):
        engine_config(num_speculative_tokens=4)


@pytest.mark.parametrize("value", [""])
def test_engine_config_refuses_what_can_guess_nothing(value):
    with pytest.raises(ConfigError, match="give 'ngram', or the folder or name of a draft model"):
        engine_config(speculative=value)


def test_engine_config_refuses_an_unknown_option_by_name():
    with pytest.raises(
        ConfigError,
        match=r"option max_seqs=4 is unknown; did you mean max_num_seqs\? the options are cache, max_num_seqs",
    ):
        engine_config(max_seqs=4)


def test_engine_config_takes_no_option_at_all():
    assert engine_config() == EngineConfig()


@pytest.mark.parametrize(
    ("cache", "name", "value"),
    [
        ("none", "max_num_batched_tokens", 8),
        ("continuous", "speculative", "ngram"),
        ("static", "scheduling", "prefill_first"),
        ("continuous", "block_size", 16),
        ("continuous", "num_blocks", 4),
        ("static", "enable_prefix_caching", False),
        ("continuous", "preemption", "swap"),
        ("none", "paged_attention", "gather"),
        ("continuous", "num_swap_blocks", 0),
    ],
)
def test_engine_config_refuses_an_option_that_the_cache_does_not_take(cache, name, value):
    with pytest.raises(ConfigError, match=f"option {name}={value!r} says nothing to cache {cache!r}"):
        engine_config(cache=cache, **{name: value})
    assert getattr(engine_config(cache="paged", **{name: value}), name) == value


def test_engine_config_refuses_two_sizes_of_one_pool():
    with pytest.raises(ConfigError, match="num_blocks=4 and kv_cache_memory=1024 say it twice; give one"):
        engine_config(num_blocks=4, kv_cache_memory=1024)


@pytest.mark.usefixtures("_without_shape_checks")
def test_engine_config_keeps_numbers_of_numpy_as_python_numbers():
    config = engine_config(max_num_seqs=np.int64(3), max_model_len=np.int32(8), batch_invariant=np.bool_(0))
    assert repr(config) == repr(EngineConfig(max_num_seqs=3, max_model_len=8, batch_invariant=False))
    with pytest.raises(ConfigError, match=r"max_num_seqs is 3\.0; it must be a whole number"):
        engine_config(max_num_seqs=np.float32(3))

"""How long may a request be, and how many blocks are there? Decided by config.json, before weights are read."""

import logging

import torch

from refinfer.cache.block_table import BlockTable
from refinfer.config import EngineConfig, ModelConfig
from refinfer.config.engine_config import DEFAULT_BLOCK_SIZE, DEFAULT_KV_CACHE_MEMORY
from refinfer.errors import ConfigError

_SHORTEST = 2
"""Tokens of the shortest request: one of the prompt, one of the output."""

# A warning, since Python shows nothing below it where no handler was set up; never a Python warning, since `-W error`
# would refuse what is to start.
_logger = logging.getLogger(__name__)


def decide_max_model_len(shape: ModelConfig, dtype: torch.dtype, config: EngineConfig) -> int:
    """Return the longest request in tokens, prompt and output together.

    Without `max_model_len` it is the model's own `max_position_embeddings`, or what fits the pool where that is less,
    which is logged.

    Args:
        shape: The model's shape.
        dtype: Dtype of keys and values.
        config: The settings.

    Raises:
        ConfigError: `max_model_len` is longer than what the model was made for, or does not fit the pool; or the pool
            holds no request at all.
    """
    if config.max_model_len is not None:
        _check_positions(shape, config.max_model_len, is_allowed=config.allow_long_max_model_len)
        if config.cache == "paged":
            num_pool_blocks(shape, dtype, config, config.max_model_len)
        return config.max_model_len
    longest = shape.max_position_embeddings
    if config.cache != "paged":
        return longest
    block_size = config.block_size or DEFAULT_BLOCK_SIZE
    num_blocks = config.num_blocks or _num_fitting_blocks(shape, dtype, config)
    num_tokens = num_blocks * block_size
    if num_tokens >= longest:
        return longest
    if num_tokens < _SHORTEST:
        # The shortest request is refused in the words that every other one is.
        num_pool_blocks(shape, dtype, config, _SHORTEST)
    _logger.warning(
        "max_model_len is %d instead of the model's %d, since the pool has %d blocks of %d tokens; "
        "a larger num_blocks, or a kv_cache_memory of %d bytes, would hold the longest request",
        num_tokens,
        longest,
        num_blocks,
        block_size,
        BlockTable.blocks_for(longest, block_size) * _bytes_per_block(shape, dtype, config),
    )
    return num_tokens


def num_pool_blocks(shape: ModelConfig, dtype: torch.dtype, config: EngineConfig, max_model_len: int) -> int:
    """Return how many blocks the pool has: those asked for, or what fits the memory and can be used.

    Raises:
        ConfigError: They cannot hold one request of `max_model_len`.
    """
    block_size = config.block_size or DEFAULT_BLOCK_SIZE
    num_needed = BlockTable.blocks_for(max_model_len, block_size)
    num_blocks = config.num_blocks or min(_num_fitting_blocks(shape, dtype, config), config.max_num_seqs * num_needed)
    if num_blocks < num_needed:
        bytes_needed = num_needed * _bytes_per_block(shape, dtype, config)
        message = (
            f"{num_blocks} blocks of {block_size} tokens cannot hold one request of max_model_len {max_model_len}; "
            f"give a max_model_len of at most {num_blocks * block_size}, a num_blocks of at least {num_needed}, "
            f"or a kv_cache_memory of at least {bytes_needed} bytes"
        )
        raise ConfigError(
            message,
            num_blocks=num_blocks,
            block_size=block_size,
            max_model_len=max_model_len,
            bytes_needed=bytes_needed,
        )
    return num_blocks


def num_draft_blocks(
    shape: ModelConfig, draft_shape: ModelConfig, dtype: torch.dtype, config: EngineConfig, max_model_len: int
) -> int:
    """Return how many blocks the draft model's cache has: what can be used, in no more memory than the pool may take.

    A sample for which there are none is not guessed for, so fewer cost time and no token.

    Raises:
        ConfigError: There is not even one.
    """
    block_size = config.block_size or DEFAULT_BLOCK_SIZE
    memory = _memory(config)
    if config.num_blocks is not None:
        memory = max(memory, config.num_blocks * _bytes_per_block(shape, dtype, config))
    bytes_per_block = _bytes_per_block(draft_shape, dtype, config)
    longest = min(max_model_len, draft_shape.max_scaled_positions)
    num_blocks = min(memory // bytes_per_block, config.max_num_seqs * BlockTable.blocks_for(longest, block_size))
    if num_blocks < 1:
        message = (
            f"a block of the draft model {config.speculative!r} takes {bytes_per_block} bytes, and it has {memory}; "
            f"give a kv_cache_memory of at least {bytes_per_block}, or a smaller block_size than {block_size}"
        )
        raise ConfigError(message, speculative=config.speculative, bytes_per_block=bytes_per_block, memory=memory)
    return num_blocks


def _check_positions(shape: ModelConfig, max_model_len: int, *, is_allowed: bool) -> None:
    made_for = shape.max_scaled_positions
    if max_model_len <= made_for or is_allowed:
        return
    message = (
        f"max_model_len {max_model_len} is more than the {made_for} positions that the model can have been made for "
        f"(max_position_embeddings {shape.max_position_embeddings}, RoPE type {shape.rope.rope_type!r}); "
        f"give at most {made_for}, or allow_long_max_model_len=True to go on where its answers may be nonsense"
    )
    raise ConfigError(message, max_model_len=max_model_len, max_positions=made_for)


def _memory(config: EngineConfig) -> int:
    return config.kv_cache_memory or DEFAULT_KV_CACHE_MEMORY


def _num_fitting_blocks(shape: ModelConfig, dtype: torch.dtype, config: EngineConfig) -> int:
    return _memory(config) // _bytes_per_block(shape, dtype, config)


def _bytes_per_block(shape: ModelConfig, dtype: torch.dtype, config: EngineConfig) -> int:
    bytes_per_token = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * dtype.itemsize
    return bytes_per_token * (config.block_size or DEFAULT_BLOCK_SIZE)

"""Which scheduler and which runner belong to a cache? Builds an engine's core from its settings."""

from refinfer.cache import PagedCache
from refinfer.config import EngineConfig
from refinfer.config.engine_config import (
    CACHES,
    CONTINUOUS_CACHES,
    DEFAULT_BLOCK_SIZE,
    DEFAULT_NUM_SPECULATIVE_TOKENS,
    DEFAULT_TOKEN_BUDGET,
    NGRAM,
    STATIC_CACHES,
)
from refinfer.engine.core import EngineCore
from refinfer.engine.loading import LoadedModel
from refinfer.engine.model_runner import ContinuousRunner, ModelRunner, PagedRunner, RecomputeRunner, StaticRunner
from refinfer.engine.sizing import num_draft_blocks, num_pool_blocks
from refinfer.engine.speculation import Speculation
from refinfer.errors import ConfigError, InvariantError
from refinfer.hub import resolve_model
from refinfer.model import Llama, load_model
from refinfer.scheduler import BlockSpace, ContinuousScheduler, RequestQueues, StaticScheduler
from refinfer.speculative import DraftModelProposer, NgramProposer, Proposer


def make_core(
    loaded: LoadedModel, config: EngineConfig, max_model_len: int, draft_model: Llama | None = None
) -> EngineCore:
    """Builds the core of an engine, with empty caches.

    Args:
        loaded: The model, its tokenizer, and the ids that end a request.
        config: Its settings.
        max_model_len: Longest request in tokens, prompt and output together.
        draft_model: What guesses tokens, where the settings name one.

    Raises:
        ConfigError: The pool cannot hold one request of `max_model_len`.
    """
    model, eos_token_ids = loaded.model, frozenset(loaded.eos_token_ids)
    space = block_space(model, config, max_model_len, loaded.name) if config.cache == "paged" else None
    proposer = make_proposer(config, model, max_model_len, draft_model)
    return EngineCore(
        make_scheduler(config, space),
        make_runner(config, model, max_model_len, space),
        eos_token_ids=eos_token_ids,
        max_model_len=max_model_len,
        tokenizer=loaded.tokenizer,
        speculation=None
        if proposer is None
        else Speculation(
            proposer,
            config.num_speculative_tokens or DEFAULT_NUM_SPECULATIVE_TOKENS,
            eos_token_ids=eos_token_ids,
            max_model_len=max_model_len,
        ),
    )


def load_draft_model(config: EngineConfig, model: Llama) -> Llama | None:
    """Loads the draft model, where the settings name one.

    Raises:
        CheckpointError: The folder cannot be loaded as it stands.
        ConfigError: Its vocabulary is another one.
    """
    if config.speculative is None or config.speculative == NGRAM:
        return None
    draft_model = load_model(
        resolve_model(config.speculative), dtype=config.dtype, batch_invariant=config.batch_invariant
    )
    own, theirs = model.config.vocab_size, draft_model.config.vocab_size
    if own != theirs:
        message = (
            f"the draft model {config.speculative!r} has a vocabulary of {theirs} tokens and the model one of {own}; "
            f"take a draft model with the same vocabulary, or speculative={NGRAM!r}"
        )
        raise ConfigError(message, speculative=config.speculative, vocab_size=own, draft_vocab_size=theirs)
    return draft_model


def make_proposer(config: EngineConfig, model: Llama, max_model_len: int, draft_model: Llama | None) -> Proposer | None:
    """Makes what guesses tokens; None where nothing does.

    Raises:
        ConfigError: The draft model's cache would have no block.
        InvariantError: The settings name a draft model, and there is none.
    """
    if config.speculative is None:
        return None
    if config.speculative == NGRAM:
        return NgramProposer()
    if draft_model is None:
        message = f"speculative={config.speculative!r} names a draft model, and none was loaded; {NGRAM!r} needs none"
        raise InvariantError(message, speculative=config.speculative)
    return DraftModelProposer(
        draft_model,
        num_blocks=num_draft_blocks(model.config, draft_model.config, draft_model.dtype, config, max_model_len),
        block_size=config.block_size or DEFAULT_BLOCK_SIZE,
        max_num_batched_tokens=config.max_num_batched_tokens or DEFAULT_TOKEN_BUDGET,
    )


def make_scheduler(config: EngineConfig, space: BlockSpace | None) -> RequestQueues:
    """Makes the scheduler of a cache; without one there is nothing to join or leave, so its batches are static too.

    Raises:
        InvariantError: The cache has none.
    """
    if config.cache in STATIC_CACHES:
        return StaticScheduler(config.max_num_seqs)
    if config.cache in CONTINUOUS_CACHES:
        return ContinuousScheduler(
            config.max_num_seqs,
            config.max_num_batched_tokens or DEFAULT_TOKEN_BUDGET,
            blocks=space,
            is_prefill_first=config.scheduling == "prefill_first",
            preempts_by_swap=config.preemption == "swap",
        )
    message = f"cache {config.cache!r} has no scheduler; {', '.join(CACHES)} have one"
    raise InvariantError(message, cache=config.cache)


def make_runner(config: EngineConfig, model: Llama, max_model_len: int, space: BlockSpace | None = None) -> ModelRunner:
    """Makes the runner of a cache.

    Raises:
        InvariantError: The cache has none, or is to keep blocks and there are none.
    """
    match config.cache:
        case "none":
            return RecomputeRunner(model, max_model_len)
        case "static":
            return StaticRunner(model, max_model_len)
        case "continuous":
            return ContinuousRunner(model, max_model_len)
        case "paged" if space is not None:
            blocks = PagedCache(
                model.config, model.dtype, num_blocks=space.pool.num_blocks, block_size=space.block_size
            )
            return PagedRunner(model, blocks, config.paged_attention or "blocks")
        case "paged":
            message = "cache 'paged' is run without blocks; give `make_runner` those that its scheduler has"
            raise InvariantError(message, cache=config.cache)
        case cache:
            message = f"cache {cache!r} has no runner; the caches that have one are none, static, continuous, paged"
            raise InvariantError(message, cache=cache)


def block_space(model: Llama, config: EngineConfig, max_model_len: int, model_key: str = "") -> BlockSpace:
    """Makes the blocks of a paged cache.

    Raises:
        ConfigError: The pool cannot hold one request of `max_model_len`.
    """
    num_blocks = num_pool_blocks(model.config, model.dtype, config, max_model_len)
    return BlockSpace(
        num_blocks,
        config.block_size or DEFAULT_BLOCK_SIZE,
        enable_prefix_caching=config.enable_prefix_caching is not False,
        num_swap_blocks=num_blocks if config.num_swap_blocks is None else config.num_swap_blocks,
        shuffle_seed=config.placement_seed,
        model_key=model_key,
    )

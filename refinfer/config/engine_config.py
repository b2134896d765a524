"""How a model is run: cache, batch size, lengths, blocks, dtype and manner of numerics."""

from dataclasses import dataclass, fields

from refinfer.config.plain_values import as_plain, meant
from refinfer.errors import ConfigError

STATIC_CACHES = ("none", "static")
"""Batches over these keep their members to the end."""

CONTINUOUS_CACHES = ("continuous", "paged")
"""Requests join and leave batches over these between two steps."""

CACHES = (*STATIC_CACHES, *CONTINUOUS_CACHES)
DTYPES = ("auto", "float32", "float64", "bfloat16", "float16")
DEVICES = ("cpu",)
PREEMPTIONS = ("recompute", "swap")
READERS = ("gather", "blocks")
SCHEDULINGS = ("running_first", "prefill_first")

DEFAULT_TOKEN_BUDGET = 256
DEFAULT_BLOCK_SIZE = 16
DEFAULT_KV_CACHE_MEMORY = 2**30
"""Bytes of keys and values where neither they nor blocks were named: 1 GiB."""

DEFAULT_NUM_SPECULATIVE_TOKENS = 4
NGRAM = "ngram"
"""Guesses tokens by looking them up; any other word for what guesses is a draft model's."""

CACHES_BY_OPTION = {
    "max_num_batched_tokens": CONTINUOUS_CACHES,
    "scheduling": CONTINUOUS_CACHES,
    "block_size": ("paged",),
    "num_blocks": ("paged",),
    "kv_cache_memory": ("paged",),
    "enable_prefix_caching": ("paged",),
    "preemption": ("paged",),
    "num_swap_blocks": ("paged",),
    "paged_attention": ("paged",),
    "placement_seed": ("paged",),
    "speculative": ("paged",),
    "num_speculative_tokens": ("paged",),
}
"""Options that only some caches take; None everywhere stands for the default."""


@dataclass(frozen=True)
class EngineConfig:
    """Settings of `LLM` and `LLMEngine`, checked when they are built.

    Options that a cache does not take are refused, unless they are None, which stands for their default.

    Attributes:
        cache: Where keys and values live: "none" (recompute), "static", "continuous" or "paged".
        max_num_seqs: Most requests in one step.
        max_model_len: Longest request in tokens, prompt and output together; None takes the model's own
            `max_position_embeddings`, or what fits the pool where that is less.
        allow_long_max_model_len: Whether `max_model_len` may exceed what the model and its RoPE scaling were made for.
        batch_invariant: Whether a row's bits must not depend on what runs beside it.
        dtype: Dtype of weights and activations; "auto" takes the checkpoint's.
        device: Where tensors live; only "cpu" is implemented.
        max_num_batched_tokens: Most tokens in one step, of prompts and decodes together; default 256.
        scheduling: "running_first" (default), or "prefill_first": prompts come before requests that decode.
        block_size: Token places of a block; default 16.
        num_blocks: Blocks of the pool; default as many as fit `kv_cache_memory`, and no more than can be used.
        kv_cache_memory: Bytes for keys and values where `num_blocks` is not given; default 1 GiB.
        enable_prefix_caching: Whether requests share the blocks of a common prefix; default True.
        preemption: How a request that has to make room comes back: "recompute" (default) or "swap".
        num_swap_blocks: Blocks that host memory takes when swapping; default as many as the pool has.
            A request for which there is no room left recomputes.
        paged_attention: How blocks are read: "blocks" (default) through the block table, or "gather" first.
        placement_seed: Seed of a random placement of blocks, for tests; by default they are handed out in order.
        speculative: What guesses tokens that one pass then verifies: "ngram", or a draft model, which is a checkpoint
            folder, the name of a fetched model or a hub id; by default nothing does.
        num_speculative_tokens: Most tokens that are guessed for a request in one step; default 4.

    Raises:
        ConfigError: A value is unknown or out of range, or the cache does not take the option.
    """

    cache: str = "paged"
    max_num_seqs: int = 16
    max_model_len: int | None = None
    allow_long_max_model_len: bool = False
    batch_invariant: bool = True
    dtype: str = "float32"
    device: str = "cpu"
    max_num_batched_tokens: int | None = None
    scheduling: str | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    kv_cache_memory: int | None = None
    enable_prefix_caching: bool | None = None
    preemption: str | None = None
    num_swap_blocks: int | None = None
    paged_attention: str | None = None
    placement_seed: int | None = None
    speculative: str | None = None
    num_speculative_tokens: int | None = None

    def __new__(cls, *_: object, **options: object) -> "EngineConfig":  # noqa: PYI034 - beartype knows no Self here
        """Refuse an option that nobody knows by name, before Python refuses it in its own words."""
        known = [field.name for field in fields(cls)]
        for name, value in options.items():
            if name not in known:
                message = f"option {name}={value!r} is unknown; {meant(name, known)}the options are {', '.join(known)}"
                raise ConfigError(message, option=name, value=value)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, as_plain(getattr(self, field.name)))
        _check_choice("cache", self.cache, CACHES)
        _check_choice("dtype", self.dtype, DTYPES)
        _check_choice("device", self.device, DEVICES)
        check_flag("batch_invariant", self.batch_invariant)
        check_flag("allow_long_max_model_len", self.allow_long_max_model_len)
        _check_count("max_num_seqs", self.max_num_seqs, 1)
        self._check_options_of_cache()
        for name in ("max_model_len", "max_num_batched_tokens", "block_size", "num_blocks", "kv_cache_memory"):
            self._check_optional_count(name, 1)
        self._check_optional_count("num_speculative_tokens", 1)
        for name in ("num_swap_blocks", "placement_seed"):
            self._check_optional_count(name, 0)
        choices_by_name = {"scheduling": SCHEDULINGS, "preemption": PREEMPTIONS, "paged_attention": READERS}
        for name, choices in choices_by_name.items():
            _check_choice(name, getattr(self, name), (*choices, None))
        if self.enable_prefix_caching is not None:
            check_flag("enable_prefix_caching", self.enable_prefix_caching)
        self._check_speculative()
        if self.allow_long_max_model_len and self.max_model_len is None:
            message = "allow_long_max_model_len says nothing without max_model_len; give both, or leave it out"
            raise ConfigError(message, allow_long_max_model_len=True)
        if self.num_blocks is not None and self.kv_cache_memory is not None:
            message = f"num_blocks={self.num_blocks} and kv_cache_memory={self.kv_cache_memory} say it twice; give one"
            raise ConfigError(message, num_blocks=self.num_blocks, kv_cache_memory=self.kv_cache_memory)

    def _check_options_of_cache(self) -> None:
        for name, caches in CACHES_BY_OPTION.items():
            value = getattr(self, name)
            if value is not None and self.cache not in caches:
                message = (
                    f"option {name}={value!r} says nothing to cache {self.cache!r}; "
                    f"leave it out, or choose cache {' or '.join(caches)}"
                )
                raise ConfigError(message, option=name, value=value, cache=self.cache)

    def _check_speculative(self) -> None:
        if self.speculative is not None and (not isinstance(self.speculative, str) or not self.speculative):
            message = f"speculative is {self.speculative!r}; give {NGRAM!r}, or the folder or name of a draft model"
            raise ConfigError(message, speculative=self.speculative)
        if self.num_speculative_tokens is not None and self.speculative is None:
            message = (
                f"num_speculative_tokens={self.num_speculative_tokens} says nothing without speculative; "
                f"leave it out, or give speculative={NGRAM!r} or a draft model"
            )
            raise ConfigError(message, num_speculative_tokens=self.num_speculative_tokens)

    def _check_optional_count(self, name: str, least: int) -> None:
        if getattr(self, name) is not None:
            _check_count(name, getattr(self, name), least)


def engine_config(**options: object) -> EngineConfig:
    """Builds an `EngineConfig` from keywords, refusing unknown ones by name.

    Raises:
        ConfigError: An option is unknown, or its value cannot work.
    """
    return EngineConfig(**options)  # type: ignore[arg-type]  # each value is checked on construction


def check_flag(name: str, value: object) -> None:
    """Refuses what is neither true nor false, such as the text "false", which would pass for true.

    Raises:
        ConfigError: The value is not a bool.
    """
    if not isinstance(value, bool):
        message = f"{name} is {value!r}; it must be True or False"
        raise ConfigError(message, name=name, value=value)


def _check_choice(name: str, value: object, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        message = f"{name} is {value!r}; choose one of {', '.join(map(str, choices))}"
        raise ConfigError(message, name=name, value=value)


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        message = f"{name} is {value!r}; it must be a whole number of at least {least}"
        raise ConfigError(message, name=name, value=value)

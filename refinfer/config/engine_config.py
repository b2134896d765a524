"""How a model is run: cache, batch size, lengths, dtype and manner of numerics."""

from dataclasses import dataclass

from refinfer.errors import ConfigError

CACHES = ("none", "static", "continuous")
PLANNED_CACHES = ("paged",)
DTYPES = ("auto", "float32", "float64", "bfloat16", "float16")
DEVICES = ("cpu",)

_PLANNED_OPTIONS = (
    "max_num_batched_tokens",
    "block_size",
    "num_blocks",
    "kv_cache_memory",
    "enable_prefix_caching",
    "preemption",
    "paged_attention",
    "scheduling",
    "speculative",
    "num_speculative_tokens",
)
"""Options that come with later modes; they are known, so that they can be refused by name."""


@dataclass(frozen=True)
class EngineConfig:
    """Settings of `LLM`, checked when they are built.

    Attributes:
        cache: Where keys and values live: "none" (recompute), "static" or "continuous".
        max_num_seqs: Most requests in one step.
        max_model_len: Longest request in tokens, prompt and output together; None takes the model's own.
        batch_invariant: Whether a row's bits must not depend on what runs beside it.
        dtype: Dtype of weights and activations; "auto" takes the checkpoint's.
        device: Where tensors live; only "cpu" is implemented.

    Raises:
        ConfigError: A value is unknown, out of range, or not implemented yet.
    """

    cache: str = "continuous"
    max_num_seqs: int = 16
    max_model_len: int | None = None
    batch_invariant: bool = True
    dtype: str = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.cache in PLANNED_CACHES:
            message = f"cache {self.cache!r} is not implemented yet; choose one of {', '.join(CACHES)}"
            raise ConfigError(message, cache=self.cache)
        _check_choice("cache", self.cache, CACHES)
        _check_choice("dtype", self.dtype, DTYPES)
        _check_choice("device", self.device, DEVICES)
        check_flag("batch_invariant", self.batch_invariant)
        _check_positive("max_num_seqs", self.max_num_seqs)
        if self.max_model_len is not None:
            _check_positive("max_model_len", self.max_model_len)


def engine_config(**options: object) -> EngineConfig:
    """Builds an `EngineConfig` from keywords, refusing unknown ones by name.

    Raises:
        ConfigError: An option is unknown or not implemented yet, or its value cannot work.
    """
    known = EngineConfig.__dataclass_fields__
    for name, value in options.items():
        if name in _PLANNED_OPTIONS:
            message = f"option {name}={value!r} is not implemented yet; the options are {', '.join(known)}"
            raise ConfigError(message, option=name, value=value)
        if name not in known:
            message = f"option {name}={value!r} is unknown; the options are {', '.join(known)}"
            raise ConfigError(message, option=name, value=value)
    return EngineConfig(**options)  # type: ignore[arg-type]  # each value is checked on construction


def check_flag(name: str, value: object) -> None:
    """Refuses what is neither true nor false, such as the text "false", which would pass for true.

    Raises:
        ConfigError: The value is not a bool.
    """
    if not isinstance(value, bool):
        message = f"{name} is {value!r}; it must be True or False"
        raise ConfigError(message, name=name, value=value)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        message = f"{name} is {value!r}; choose one of {', '.join(choices)}"
        raise ConfigError(message, name=name, value=value)


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        message = f"{name} is {value!r}; it must be a whole number of at least 1"
        raise ConfigError(message, name=name, value=value)

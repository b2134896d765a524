"""What decides a generated checkpoint: every width, setting and seed of a random Llama model."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from oracle.errors import ScenarioError
from oracle.tiny_tokenizer import BOS_TOKEN_ID, PAD_TOKEN_ID, TOKENIZER_SIZE

DTYPES = ("float32", "float64", "bfloat16", "float16")
"""Dtypes in which weights can lie on disk."""

_FIELDS_BY_ROPE_TYPE = {
    "default": {},
    "linear": {"factor": "rope_factor"},
    "llama3": {
        "factor": "rope_factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_position_embeddings": "original_max_position_embeddings",
    },
}
"""For each RoPE type the settings that config.json has for it, each with the field of a spec that gives its value."""

ROPE_TYPES = tuple(_FIELDS_BY_ROPE_TYPE)
"""The simplest first, since a shrinking search moves there."""

FORMAT_VERSION = 2
"""Raised whenever a spec would give other bytes than before, so that no folder written earlier is taken for it."""


@dataclass(frozen=True)
class CheckpointSpec:
    """A random Llama checkpoint, in full; the same spec is the same weights on every machine.

    The defaults are the simplest model that is sensitive.

    Attributes:
        seed: Decides every random value.
        hidden_size: Width of the residual stream; a multiple of `num_heads`, since the reference demands it.
        intermediate_size: Inner width of the MLP.
        num_layers: Number of decoder layers.
        num_heads: Query heads of each layer.
        num_kv_heads: Key and value heads of each layer; divides `num_heads`.
        head_dim: Width of one head, even; it need not be `hidden_size / num_heads`.
        vocab_size: Number of token ids.
        rope_type: One of `ROPE_TYPES`.
        rope_theta: Base of the rotary wavelengths.
        rope_factor: How much longer scaled wavelengths are ("linear", "llama3").
        low_freq_factor: Wavelengths above the original length divided by this are scaled in full ("llama3").
        high_freq_factor: Wavelengths below the original length divided by this stay as they are ("llama3").
        original_max_position_embeddings: The original length ("llama3"). The defaults of these three put
            wavelengths into all three bands for every even `head_dim` from 8 on and bases of 10000 to 500000.
        max_position_embeddings: Longest request, in tokens.
        norm_eps: Epsilon of every RMSNorm.
        tie_word_embeddings: The head uses the embedding's weight, and no file holds one of its own.
        attention_bias: The four attention projections have a bias.
        mlp_bias: The three MLP projections have a bias.
        dtype: Dtype on disk, one of `DTYPES`; values are float32 rounded to it, ties to even.
        legacy_rope_keys: config.json has the older key names: `rope_theta`, `rope_scaling`, `torch_dtype`.
        num_shards: Number of weight files; 1 is a single file without an index.
        eos_token_ids: Ids that end a request: all of them in generation_config.json, the first in config.json.
        num_tied_rows: So many rows of the head repeat the row before them, so that argmax ties exactly.
        num_near_tied_rows: So many further rows differ from the row before them in the last bit on disk of
            each element, so that two logits lie within rounding of each other.
        sensitive: Scales on which faults show; otherwise the usual initialisation, all weights small.
        with_tokenizer: Write the tiny tokenizer beside the weights.

    Raises:
        ScenarioError: Two values do not go together.
    """

    seed: int = 0
    hidden_size: int = 64
    intermediate_size: int = 112
    num_layers: int = 2
    num_heads: int = 2
    num_kv_heads: int = 1
    head_dim: int = 16
    vocab_size: int = 131
    rope_type: str = "default"
    rope_theta: float = 10000.0
    rope_factor: float = 4.0
    low_freq_factor: float = 0.125
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 32
    max_position_embeddings: int = 512
    norm_eps: float = 1e-5
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    dtype: str = "float32"
    legacy_rope_keys: bool = False
    num_shards: int = 1
    eos_token_ids: tuple[int, ...] = ()
    num_tied_rows: int = 0
    num_near_tied_rows: int = 0
    sensitive: bool = True
    with_tokenizer: bool = False

    def __post_init__(self) -> None:
        num_doubled_rows = self.num_tied_rows + self.num_near_tied_rows
        smallest_vocab = max(TOKENIZER_SIZE if self.with_tokenizer else 1, 2 * num_doubled_rows)
        faults = {
            f"dtype {self.dtype!r} is none of {', '.join(DTYPES)}": self.dtype not in DTYPES,
            f"rope_type {self.rope_type!r} is none of {', '.join(ROPE_TYPES)}": self.rope_type not in ROPE_TYPES,
            f"num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}": bool(
                self.num_heads % self.num_kv_heads
            ),
            f"hidden_size {self.hidden_size} is no multiple of num_heads {self.num_heads}": bool(
                self.hidden_size % self.num_heads
            ),
            f"head_dim {self.head_dim} is odd, but rotary embedding turns pairs": bool(self.head_dim % 2),
            f"vocab_size {self.vocab_size} is below {smallest_vocab}, which the tokenizer or the tied rows need": (
                self.vocab_size < smallest_vocab
            ),
        }
        for message, is_fault in faults.items():
            if is_fault:
                raise ScenarioError(message, spec=self)

    @property
    def digest(self) -> str:
        """Identifies the bytes that this spec gives: two specs with one digest are the same checkpoint."""
        fields = {"format_version": FORMAT_VERSION, **asdict(self)}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def raw_config(self) -> dict[str, Any]:
        """Gives the contents of config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tie_word_embeddings,
            "attention_bias": self.attention_bias,
            "mlp_bias": self.mlp_bias,
            # Named even where absent, since the reference would put ids of its own there.
            "bos_token_id": BOS_TOKEN_ID if self.with_tokenizer else None,
            "eos_token_id": self.eos_token_ids[0] if self.eos_token_ids else None,
            "pad_token_id": PAD_TOKEN_ID if self.with_tokenizer else None,
            "torch_dtype" if self.legacy_rope_keys else "dtype": self.dtype,
            **self._rope_keys(),
        }

    def _rope_keys(self) -> dict[str, Any]:
        fields = _FIELDS_BY_ROPE_TYPE[self.rope_type]
        scaling = {"rope_type": self.rope_type, **{key: getattr(self, name) for key, name in fields.items()}}
        if not self.legacy_rope_keys:
            return {"rope_parameters": {**scaling, "rope_theta": self.rope_theta}}
        return {"rope_theta": self.rope_theta, "rope_scaling": None if self.rope_type == "default" else scaling}


def llama_3_2_1b_spec() -> CheckpointSpec:
    """Gives the exact shape of Llama-3.2-1B in bfloat16, 2.5 GB in shards of about 1 GB, with random weights.

    The numbers are those of the published config.json of that model.
    """
    return CheckpointSpec(
        hidden_size=2048,
        intermediate_size=8192,
        num_layers=16,
        num_heads=32,
        num_kv_heads=8,
        head_dim=64,
        vocab_size=128256,
        rope_type="llama3",
        rope_theta=500000.0,
        rope_factor=32.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
        max_position_embeddings=131072,
        norm_eps=1e-5,
        tie_word_embeddings=True,
        dtype="bfloat16",
        legacy_rope_keys=True,
        num_shards=3,
        eos_token_ids=(128001, 128008, 128009),
        sensitive=False,
    )

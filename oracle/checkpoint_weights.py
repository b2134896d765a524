"""Random weights that make a small model bite, the same bits on every machine.

Same bits: a weight is made of raw words of NumPy's Philox, keyed by the seed and the weight's name, so
neither the order of the weights nor the size of the blocks matters. Each word gives four integers of 16 bits, and from
there on only single float32 additions and multiplications are used, which IEEE 754 fixes. No normal
deviates: their tails go through the mathematical library of the machine.

Make it bite: with the usual initialisation attention is nearly uniform, logits hardly depend on
positions, and a tied head repeats the input token. Here instead
- scores spread differently from head to head, so that some heads attend to few tokens and some to many;
- embeddings are small beside what the layers add, so that the context decides and epsilon counts;
- norm weights lie between 1/2 and 3/2, so that leaving one out shows;
- biases are large enough to show, and too small to drown the context;
- the final scale keeps logits at a standard deviation of about 2, whatever the widths are.
"""

import hashlib
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from oracle.checkpoint_spec import CheckpointSpec

EMBEDDING_NAME = "model.embed_tokens.weight"
HEAD_NAME = "lm_head.weight"
FINAL_NORM_NAME = "model.norm.weight"

MANTISSA_BITS_BY_DTYPE = {"float32": 23, "float64": 23, "bfloat16": 7, "float16": 10}
"""Bits of a weight behind the leading one; float64 files hold float32 values."""

# Standard deviations. A matrix with one of these maps unit inputs to outputs of that size.
_LOGITS = 2.0
_EMBEDDING = 0.0625
_SCORES_BY_HEAD = (2.5, 0.5, 1.5, 1.0)
"""Spread of attention scores, head by head; each layer begins one further."""
_SCORES_OF_SINGLE_HEAD = 1.5
_STD_BY_PROJECTION = {
    "k_proj": 1.0,
    "v_proj": 2.0,
    "o_proj": 1.0,
    "gate_proj": 1.5,
    "up_proj": 1.0,
    "down_proj": 2.0,
}
_BIAS_SHARE = 0.0625
"""A bias beside the output it is added to."""
_USUAL = 0.02
"""What models are commonly initialised with; here for `sensitive=False`."""

_STD_OF_UNIFORM = 1.0 / math.sqrt(3.0)
"""Of the uniform distribution from -1 to 1."""

_BLOCK_SIZE = 2**20
"""Elements made at a time, so that a large weight never stands in memory as a whole."""


def weight_shapes(spec: CheckpointSpec) -> dict[str, tuple[int, ...]]:
    """Gives the shape of each weight that the files hold, by name, in the order of the files."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    projections = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shape_by_name: dict[str, tuple[int, ...]] = {EMBEDDING_NAME: (spec.vocab_size, hidden)}
    for layer in range(spec.num_layers):
        prefix = f"model.layers.{layer}."
        shape_by_name[f"{prefix}input_layernorm.weight"] = (hidden,)
        shape_by_name[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
        for path, shape in projections.items():
            shape_by_name[f"{prefix}{path}.weight"] = shape
            if spec.attention_bias if path.startswith("self_attn") else spec.mlp_bias:
                shape_by_name[f"{prefix}{path}.bias"] = shape[:1]
    shape_by_name[FINAL_NORM_NAME] = (hidden,)
    if not spec.tie_word_embeddings:
        shape_by_name[HEAD_NAME] = (spec.vocab_size, hidden)
    return shape_by_name


def make_weights(spec: CheckpointSpec) -> Iterator[tuple[str, np.ndarray]]:
    """Makes the weights one after another, as float32 that is not yet rounded to the dtype on disk."""
    for name, shape in weight_shapes(spec).items():
        yield name, np.concatenate(list(weight_blocks(spec, name))).reshape(shape)


def weight_blocks(spec: CheckpointSpec, name: str) -> Iterator[Float[np.ndarray, "rows columns"]]:
    """Makes one weight as blocks of whole rows, first rows first; a vector is one column."""
    shape = weight_shapes(spec)[name]
    num_rows, num_columns = shape[0], math.prod(shape[1:])
    stream = UniformStream(spec.seed, name)
    # A multiple of 4 rows uses up whole words of the stream, and no pair of tied rows is cut.
    block_rows = max(4, _BLOCK_SIZE // num_columns // 4 * 4)
    scale = _scale(spec, name)
    doubled_rows = _doubled_rows(spec) if name == (EMBEDDING_NAME if spec.tie_word_embeddings else HEAD_NAME) else {}
    for start in range(0, num_rows, block_rows):
        rows = range(start, min(start + block_rows, num_rows))
        values = stream.uniform(len(rows) * num_columns).reshape(len(rows), num_columns)
        if name.endswith("norm.weight"):
            values = np.float32(1.0) + values * np.float32(0.5 if spec.sensitive else 0.0)
        block = values * (scale if scale.size == 1 else scale[rows.start : rows.stop, None])
        for row, last_bit in doubled_rows.items():
            if row in rows:
                source = block[row - 1 - rows.start].view(np.uint32)
                block[row - rows.start] = (source ^ np.uint32(last_bit)).view(np.float32)
        yield block


class UniformStream:
    """Uniform numbers between -1 and 1 that belong to one weight of one seed."""

    def __init__(self, seed: int, name: str) -> None:
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        self._generator = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def uniform(self, count: int) -> Float[np.ndarray, " count"]:
        """Gives the next numbers, odd multiples of 2 to the power -16, so that none is 0."""
        words = self._generator.random_raw(-(-count // 4)).astype("<u8", copy=False)
        odd = 2 * words.view("<u2")[:count].astype(np.int32) - 65535
        return odd.astype(np.float32) * np.float32(2.0**-16)


def _scale(spec: CheckpointSpec, name: str) -> Float[np.ndarray, " rows"]:
    """Gives what uniform numbers are multiplied with: one factor, or one for each row."""
    *_, module, kind = name.split(".")
    if module.endswith("norm"):
        return np.array([_final_norm_scale(spec) if name == FINAL_NORM_NAME else 1.0], np.float32)
    if not spec.sensitive:
        return np.array([_USUAL / _STD_OF_UNIFORM], np.float32)
    fan_in = weight_shapes(spec)[name.removesuffix(kind) + "weight"][1]
    if module == "embed_tokens":
        std = np.array([_EMBEDDING])
    elif module == "lm_head":
        std = np.array([_LOGITS / math.sqrt(fan_in)])
    else:
        outputs = _query_std(spec, name) if module == "q_proj" else np.array([_STD_BY_PROJECTION[module]])
        std = outputs * (_BIAS_SHARE if kind == "bias" else 1.0 / math.sqrt(fan_in))
    return (std / _STD_OF_UNIFORM).astype(np.float32)


def _final_norm_scale(spec: CheckpointSpec) -> float:
    """A tied head has the small values of the embedding, which the final norm makes up for."""
    if not (spec.sensitive and spec.tie_word_embeddings):
        return 1.0
    return _LOGITS / (_EMBEDDING * math.sqrt(spec.hidden_size))


def _query_std(spec: CheckpointSpec, name: str) -> Float[np.ndarray, " rows"]:
    """Gives the spread of each query row; keys have spread 1, so a head's scores have that of its queries."""
    if spec.num_heads == 1:
        return np.array([_SCORES_OF_SINGLE_HEAD])
    layer = int(name.split(".")[2])
    stds = [_SCORES_BY_HEAD[(head + layer) % len(_SCORES_BY_HEAD)] for head in range(spec.num_heads)]
    return np.repeat(stds, spec.head_dim)


def _doubled_rows(spec: CheckpointSpec) -> dict[int, int]:
    """Gives the rows of the head that follow the row before them, with the bits in which they differ from it.

    Pairs are spread evenly over the vocabulary. They are neighbours, so that matrix products, which
    treat the last few columns differently, treat both alike and their logits are equal to the bit.
    """
    count = spec.num_tied_rows + spec.num_near_tied_rows
    last_bit = 1 << (23 - MANTISSA_BITS_BY_DTYPE[spec.dtype])
    bits_by_row = {}
    for place in range(count):
        is_tied = (place + 1) * spec.num_tied_rows // count > place * spec.num_tied_rows // count
        bits_by_row[place * (spec.vocab_size // 2) // count * 2 + 1] = 0 if is_tied else last_bit
    return bits_by_row

"""The second witness: a Llama's forward pass in NumPy float64, from the formulas.

It shares no code with `refinfer` or with the reference, and reads the checkpoint by itself,
so what agrees with it has not inherited a mistake from there.
"""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from oracle.errors import ReferenceUnavailable, ScenarioError
from oracle.witness_checkpoint import (
    EMBEDDING_WEIGHT,
    SETTINGS_BY_ROPE_TYPE,
    StoredWeight,
    WitnessConfig,
    read_config,
    read_weights,
    to_float64,
)

Rows = Float64[np.ndarray, "tokens width"]
"""One row for each token of the request: the residual stream, or what a projection gives."""

Heads = Float64[np.ndarray, "tokens heads head_dim"]
"""Queries, or the attention output of each query head."""

KVHeads = Float64[np.ndarray, "tokens kv_heads head_dim"]
"""Keys or values."""

Activation = Float64[np.ndarray, "tokens ..."]
"""Any of these."""

Frequencies = Float64[np.ndarray, " half_head_dim"]
"""The angle by which each pair of dimensions turns from one position to the next, in radians."""

Angles = Float64[np.ndarray, "tokens half_head_dim"]
"""The angle of each pair of dimensions at each token's position, in radians."""

Computation = Generator[tuple[str, Activation], None, Rows]
"""Yields activations under their canonical names as they come; returns what the next part works on."""


def rms_norm(inputs: Rows, weight: Float64[np.ndarray, " width"], eps: float) -> Rows:
    """Divides each row by its root mean square and scales it (Zhang & Sennrich 2019, equation 4)."""
    normed: Rows = weight * inputs / np.sqrt(np.mean(inputs**2, axis=-1, keepdims=True) + eps)
    return normed


def silu(inputs: Rows) -> Rows:
    """Computes x · sigmoid(x), the Swish that gates SwiGLU (Shazeer 2020, equation 5)."""
    with np.errstate(over="ignore"):  # exp overflows to infinity only where the result is 0 to every digit
        gate: Rows = inputs / (1 + np.exp(-inputs))
    return gate


def inverse_frequencies(rope: Mapping[str, Any], head_dim: int) -> Frequencies:
    """Computes how fast each pair of dimensions turns.

    Pair i turns by theta^(-2i / head_dim) at each position (Su et al. 2021, section 3.2.2).
    "linear" divides every angle by the factor (Chen et al. 2023).
    "llama3" (Llama 3.1) keeps the pairs that make at least `high_freq_factor` turns within the original length,
    divides those that make at most `low_freq_factor`, and in between mixes the two, linearly in that number.

    Args:
        rope: Rotary settings, as in `WitnessConfig`.
        head_dim: Width of one head.

    Raises:
        ScenarioError: The RoPE type has no formula here.
    """
    frequencies: Frequencies = rope["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
    match rope["rope_type"]:
        case "default":
            pass
        case "linear":
            frequencies /= rope["factor"]
        case "llama3":
            num_turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
            low, high = rope["low_freq_factor"], rope["high_freq_factor"]
            share_kept = np.clip((num_turns - low) / (high - low), 0, 1)
            frequencies *= share_kept + (1 - share_kept) / rope["factor"]
        case rope_type:
            message = f"RoPE type {rope_type!r} has no formula; those that have are {', '.join(SETTINGS_BY_ROPE_TYPE)}"
            raise ScenarioError(message, rope_type=rope_type)
    return frequencies


def rotate(vectors: Heads, angles: Angles) -> Heads:
    """Turns each pair of dimensions by its angle (Su et al. 2021, equation 15).

    Dimension i is paired with i + head_dim / 2, which is how Hugging Face checkpoints store them;
    the paper pairs neighbours.
    """
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = np.split(vectors, 2, axis=-1)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def attend(queries: Heads, keys: KVHeads, values: KVHeads) -> Heads:
    """Computes causal softmax attention (Vaswani et al. 2017, equation 1).

    Each key/value head serves a run of neighbouring query heads (Ainslie et al. 2023).
    """
    num_tokens, num_heads, head_dim = queries.shape
    group_size = num_heads // keys.shape[1]
    keys, values = (np.repeat(shared, group_size, axis=1) for shared in (keys, values))
    scores = queries.transpose(1, 0, 2) @ keys.transpose(1, 2, 0) / np.sqrt(head_dim)  # heads q_len kv_len
    may_attend = np.tril(np.ones((num_tokens, num_tokens), dtype=bool))
    scores = np.where(may_attend, scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    output: Heads = (shares @ values.transpose(1, 0, 2)).transpose(1, 0, 2)  # tokens heads head_dim
    return output


@dataclass(frozen=True)
class Witness:
    """A Llama in float64 that computes a whole request at once and keeps nothing.

    Weights stay in their files and are widened one at a time, when they are used:
    a model needs little more memory than its largest weight.

    Attributes:
        config: What config.json says.
        weights: The stored weights by name.
    """

    config: WitnessConfig
    weights: Mapping[str, StoredWeight]

    @classmethod
    def open(cls, folder: str | Path) -> "Witness":
        """Opens a checkpoint folder.

        Raises:
            ReferenceUnavailable: It cannot be read, or holds a model that the formulas do not describe.
        """
        folder = Path(folder)
        try:
            config = read_config(folder)
            return cls(config=config, weights=read_weights(folder, config))
        except (OSError, ValueError, KeyError) as error:
            reason = f"{type(error).__name__}: {error}"
            message = f"the witness cannot read {folder} ({reason}); give it a whole Llama checkpoint"
            raise ReferenceUnavailable(message, folder=folder) from error

    def logits(self, token_ids: Sequence[int]) -> Float64[np.ndarray, "tokens vocab"]:
        """Computes the logits after every token of one request.

        Raises:
            ScenarioError: There is no token, or an id lies outside the vocabulary.
            ReferenceUnavailable: The checkpoint lacks a weight.
        """
        _, logits = deque(self._compute(token_ids), maxlen=1).pop()  # lets go of every other activation
        return logits

    def activations(self, token_ids: Sequence[int]) -> dict[str, Activation]:
        """Computes everything that `oracle.activations.canonical_names` names, in that order.

        Raises:
            ScenarioError: There is no token, or an id lies outside the vocabulary.
            ReferenceUnavailable: The checkpoint lacks a weight.
        """
        return dict(self._compute(token_ids))

    def _compute(self, token_ids: Sequence[int]) -> Computation:
        embedding = self._stored(EMBEDDING_WEIGHT)
        if not token_ids or min(token_ids) < 0 or max(token_ids) >= len(embedding):
            message = f"token ids are {list(token_ids)}; give at least one, each from 0 to {len(embedding) - 1}"
            raise ScenarioError(message, token_ids=token_ids)
        frequencies = inverse_frequencies(self.config.rope, self.config.head_dim)
        angles = np.outer(np.arange(len(token_ids)), frequencies)
        hidden_states = to_float64(embedding[list(token_ids)])
        yield "model.embed_tokens", hidden_states
        for layer_index in range(self.config.num_layers):
            hidden_states = yield from self._layer(f"model.layers.{layer_index}", hidden_states, angles)
        hidden_states = yield from self._norm("model.norm", hidden_states)
        return (yield from self._linear("lm_head", hidden_states, has_bias=False))

    def _layer(self, path: str, hidden_states: Rows, angles: Angles) -> Computation:
        normed = yield from self._norm(f"{path}.input_layernorm", hidden_states)
        hidden_states = hidden_states + (yield from self._attention(f"{path}.self_attn", normed, angles))
        normed = yield from self._norm(f"{path}.post_attention_layernorm", hidden_states)
        hidden_states = hidden_states + (yield from self._mlp(f"{path}.mlp", normed))
        yield path, hidden_states
        return hidden_states

    def _attention(self, path: str, normed: Rows, angles: Angles) -> Computation:
        has_bias = self.config.attention_bias
        projected = []
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = yield from self._linear(f"{path}.{name}", normed, has_bias=has_bias)
            projected.append(rows.reshape(len(rows), -1, self.config.head_dim))  # tokens any_heads head_dim
        queries, keys, values = projected
        queries, keys = rotate(queries, angles), rotate(keys, angles)
        yield f"{path}.rotated_queries", queries
        yield f"{path}.rotated_keys", keys
        per_head_output = attend(queries, keys, values)
        yield f"{path}.per_head_output", per_head_output
        rows = per_head_output.reshape(len(normed), -1)  # tokens width
        return (yield from self._linear(f"{path}.o_proj", rows, has_bias=has_bias))

    def _mlp(self, path: str, normed: Rows) -> Computation:
        has_bias = self.config.mlp_bias
        gate = yield from self._linear(f"{path}.gate_proj", normed, has_bias=has_bias)
        up = yield from self._linear(f"{path}.up_proj", normed, has_bias=has_bias)
        return (yield from self._linear(f"{path}.down_proj", silu(gate) * up, has_bias=has_bias))

    def _norm(self, path: str, hidden_states: Rows) -> Computation:
        normed = rms_norm(hidden_states, to_float64(self._stored(f"{path}.weight")), self.config.norm_eps)
        yield path, normed
        return normed

    def _linear(self, path: str, rows: Rows, *, has_bias: bool) -> Computation:
        output: Rows = rows @ to_float64(self._stored(f"{path}.weight")).T
        if has_bias:
            output += to_float64(self._stored(f"{path}.bias"))
        yield path, output
        return output

    def _stored(self, name: str) -> StoredWeight:
        if name not in self.weights:
            message = f"the witness finds no weight {name} in the checkpoint; copy or download the missing file"
            raise ReferenceUnavailable(message, name=name)
        return self.weights[name]

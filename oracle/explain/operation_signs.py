"""Does each operation of a pass give what it should for the very inputs that it got? Nothing is inherited then."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oracle.explain.clues import FirstOperation, Place
from oracle.explain.comparing import layer_of, shown_name
from oracle.explain.sources import sources_of_module
from oracle.explain.suspicion import Moment, Suspect, Suspicion
from oracle.witness import Witness, attend, inverse_frequencies, rms_norm, silu
from oracle.witness_checkpoint import EMBEDDING_WEIGHT, to_float64

Wide = np.ndarray
"""An activation widened to float64."""


@dataclass(frozen=True)
class Due:
    """What one operation should have given.

    Attributes:
        name: What was recorded of it.
        inputs: What it was given, by name.
        value: What follows from them.
        bound: How far rounding may move each element.
    """

    name: str
    inputs: tuple[str, ...]
    value: Wide
    bound: Wide


class PassCheck:
    """Computes every operation of one pass once more, in float64, each from what it was given.

    Args:
        folder: The checkpoint.
        records: What every module gave, by position.
        eps: Distance from 1 to the next number in the model's dtype.
        token_ids: What ran.
    """

    def __init__(self, folder: Path, records: Mapping[str, Tensor], eps: float, token_ids: tuple[int, ...]) -> None:
        self._witness = Witness.open(folder)
        self._records = records
        self._eps = eps
        self._token_ids = token_ids

    def first_sign(self, request: int) -> Suspicion | None:
        """Gives the first operation that does not give what it should."""
        for due in self._dues():
            own = self._wide(due.name).reshape(due.value.shape)
            difference = np.abs(own - due.value)
            is_off = ~(difference <= due.bound)
            if is_off.any():
                return self._sign(request, due, difference, is_off)
        return None

    def _sign(self, request: int, due: Due, difference: Wide, is_off: Wide) -> Suspicion:
        position = int(is_off.reshape(len(is_off), -1).any(axis=1).argmax())
        place = Place(None, request, 0, position, layer_of(due.name))
        largest, bound = float(difference.max()), float(due.bound.max())
        name = shown_name(due.name)
        clue = FirstOperation(name, place, largest, bound, tuple(map(shown_name, due.inputs)), "witness")
        what = f"{name} is {largest:.3g} off for the very inputs that it got, where {bound:.3g} is permitted"
        kind = "silu" if due.name.endswith("down_proj.input") else due.name
        return Suspicion(-1, Moment.FORWARD, 0, Suspect("model", name, sources_of_module(kind)), what, place, clue)

    def _dues(self) -> Iterator[Due]:
        yield self._exact("model.embed_tokens", (), self._weight(EMBEDDING_WEIGHT)[list(self._token_ids)])
        yield from self._tables()
        hidden = "model.embed_tokens"
        for layer in range(self._witness.config.num_layers):
            path = f"model.layers.{layer}"
            yield from self._layer(path, hidden)
            hidden = path
        yield self._norm("model.norm", self._records[hidden], (hidden,))
        yield self._linear("lm_head", "model.norm", has_bias=False)

    def _tables(self) -> Iterator[Due]:
        config = self._witness.config
        angles = np.outer(np.arange(len(self._token_ids)), inverse_frequencies(config.rope, config.head_dim))
        angles = np.concatenate((angles, angles), axis=1)
        bound = 2 * self._eps + 4 * min(self._eps, float(np.finfo(np.float32).eps)) * angles
        yield Due("model.rotary_emb[0]", ("position_ids",), np.cos(angles), bound)
        yield Due("model.rotary_emb[1]", ("position_ids",), np.sin(angles), bound)

    def _layer(self, path: str, hidden: str) -> Iterator[Due]:
        config, attention, mlp = self._witness.config, f"{path}.self_attn", f"{path}.mlp"
        yield self._norm(f"{path}.input_layernorm", self._records[hidden], (hidden,))
        for name in ("q_proj", "k_proj", "v_proj"):
            yield self._linear(f"{attention}.{name}", f"{path}.input_layernorm", has_bias=config.attention_bias)
        yield self._rotated(f"{attention}.rope[0]", f"{attention}.q_proj")
        yield self._rotated(f"{attention}.rope[1]", f"{attention}.k_proj")
        yield self._attended(attention)
        yield self._linear(f"{attention}.o_proj", f"{attention}.core", has_bias=config.attention_bias)
        yield self._same(attention, f"{attention}.o_proj")
        middle = self._records[hidden] + self._records[attention]
        yield self._norm(f"{path}.post_attention_layernorm", middle, (hidden, attention))
        for name in ("gate_proj", "up_proj"):
            yield self._linear(f"{mlp}.{name}", f"{path}.post_attention_layernorm", has_bias=config.mlp_bias)
        gate, up = self._wide(f"{mlp}.gate_proj"), self._wide(f"{mlp}.up_proj")
        product = silu(gate) * up
        # The gate rounds after exp, sum and quotient, and the product once more.
        bound = 8 * self._eps * np.abs(product) + float(np.finfo(np.float16).tiny) * self._eps
        yield Due(f"{mlp}.down_proj.input", (f"{mlp}.gate_proj", f"{mlp}.up_proj"), product, bound)
        yield self._linear(f"{mlp}.down_proj", f"{mlp}.down_proj.input", has_bias=config.mlp_bias)
        yield self._same(mlp, f"{mlp}.down_proj")
        total = middle + self._records[mlp]
        yield self._exact(path, (hidden, attention, mlp), total.to(torch.float64).numpy())

    def _norm(self, name: str, inputs: Tensor, given: tuple[str, ...]) -> Due:
        weight = self._weight(f"{name}.weight")
        value = rms_norm(inputs.to(torch.float64).numpy(), weight, self._witness.config.norm_eps)
        # In half precision the quotient rounds once, and the product with the weight once more: half an eps each.
        is_half = self._eps > float(np.finfo(np.float32).eps)
        return Due(name, given, value, (1.1 if is_half else 16) * self._eps * np.abs(value))

    def _linear(self, name: str, given: str, *, has_bias: bool) -> Due:
        inputs, weight = self._wide(given), self._weight(f"{name}.weight")
        inputs = inputs.reshape(len(inputs), -1)
        bias = self._weight(f"{name}.bias") if has_bias else np.zeros(len(weight))
        sizes = np.abs(inputs) @ np.abs(weight).T + np.abs(bias)
        factor = 4 + inputs.shape[1] ** 0.5  # of terms that round at random
        return Due(name, (given,), inputs @ weight.T + bias, factor * self._eps * sizes)

    def _rotated(self, name: str, given: str) -> Due:
        vectors = self._wide(given)
        vectors = vectors.reshape(len(vectors), -1, self._witness.config.head_dim)
        cos, sin = (self._wide(f"model.rotary_emb[{place}]")[:, None] for place in (0, 1))
        first, second = np.split(vectors, 2, axis=-1)
        turned = np.concatenate((-second, first), axis=-1)
        bound = 4 * self._eps * (np.abs(vectors * cos) + np.abs(turned * sin))
        return Due(name, (given, "model.rotary_emb"), vectors * cos + turned * sin, bound)

    def _attended(self, path: str) -> Due:
        queries, keys = self._wide(f"{path}.rope[0]"), self._wide(f"{path}.rope[1]")
        values = self._wide(f"{path}.v_proj").reshape(keys.shape)
        score = float(np.abs(queries).max() * np.abs(keys).max()) * queries.shape[-1] ** 0.5
        bound = self._eps * (16 + 4 * score) * float(np.abs(values).max())
        value = attend(queries, keys, values)
        given = tuple(f"{path}.{name}" for name in ("rope[0]", "rope[1]", "v_proj"))
        return Due(f"{path}.core", given, value, np.full_like(value, bound))

    def _same(self, name: str, given: str) -> Due:
        return self._exact(name, (given,), self._wide(given))

    def _exact(self, name: str, given: tuple[str, ...], value: Wide) -> Due:
        rounded = value if self._records[name].dtype == torch.float64 else self._rounded(value, name)
        return Due(name, given, rounded, np.zeros_like(rounded))

    def _rounded(self, value: Wide, name: str) -> Wide:
        return torch.from_numpy(value).to(self._records[name].dtype).to(torch.float64).numpy()

    def _wide(self, name: str) -> Wide:
        return self._records[name].to(torch.float64).numpy()

    def _weight(self, name: str) -> Wide:
        """Gives a weight as the model holds it: rounded to its dtype."""
        return self._rounded(to_float64(np.asarray(self._witness.weights[name])), "model.norm")

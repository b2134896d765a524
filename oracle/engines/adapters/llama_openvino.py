"""How does a Llama checkpoint of Hugging Face become a model of OpenVINO, in float32 from end to end?"""

from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as ops

from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_files import Array, inverse_frequencies, read_config, read_weights

_LOWEST = float(np.finfo(np.float32).min)


def write_llama_openvino(folder: Path, target: Path, *, num_layers: int | None = None) -> dict[str, Any]:
    """Writes `openvino_model.xml` and its weights, with keys and values as states, as exported models have them.

    Args:
        folder: A Hugging Face checkpoint folder of the Llama family.
        target: The folder that is written into.
        num_layers: After how many layers the model is cut off; None for no cut.

    Returns:
        The checkpoint's configuration.

    Raises:
        Refused: The checkpoint is of another family, or has an activation that is not known here.
    """
    config = read_config(folder)
    config["num_hidden_layers"] = num_layers or config["num_hidden_layers"]
    model = _Builder(config, read_weights(folder)).build()
    openvino.save_model(model, target / "openvino_model.xml", compress_to_fp16=False)
    return config


def write_mute_tokenizer(target: Path) -> None:
    """Writes an `openvino_tokenizer.xml` for which every text is one token, the first.

    The engine wants a tokenizer, compares that of a draft with its own, and asks it for nothing where it is given ids.
    """
    texts = _parameter("string_input", [-1], openvino.Type.string)
    shape = ops.concat([ops.shape_of(texts), _ints([1])], 0)
    results = []
    for name, value in (("input_ids", 0), ("attention_mask", 1)):
        result = ops.result(ops.broadcast(_ints(value), shape))
        result.output(0).tensor.set_names({name})
        results.append(result)
    openvino.save_model(openvino.Model(results, [texts], "tokenizer"), target / "openvino_tokenizer.xml")


class _Builder:
    """Puts the operations of one model together."""

    def __init__(self, config: dict[str, Any], weight_by_name: dict[str, Array]) -> None:
        self._config = config
        self._weight_by_name = weight_by_name
        self._head_dim = config["head_dim"]
        self._input_ids = _parameter("input_ids", [-1, -1], np.int64)
        self._attention_mask = _parameter("attention_mask", [-1, -1], np.int64)
        self._position_ids = _parameter("position_ids", [-1, -1], np.int64)
        self._beam_idx = _parameter("beam_idx", [-1], np.int32)
        self._batch = ops.gather(ops.shape_of(self._input_ids), _ints([0]), _ints(0))
        self._sinks: list[Any] = []

    def build(self) -> openvino.Model:
        """Gives the model."""
        embedding = ops.constant(self._weight_by_name["model.embed_tokens.weight"])
        hidden = ops.gather(embedding, ops.convert(self._input_ids, np.int32), ops.constant(0, np.int32))
        cos, sin = self._rotations()
        mask = self._mask()
        for layer in range(self._config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            normed = self._norm(hidden, f"{name}.input_layernorm")
            hidden = ops.add(hidden, self._attention(normed, name, cos, sin, mask))
            hidden = ops.add(hidden, self._mlp(self._norm(hidden, f"{name}.post_attention_layernorm"), f"{name}.mlp"))
        hidden = self._norm(hidden, "model.norm")
        head = "lm_head" if "lm_head.weight" in self._weight_by_name else "model.embed_tokens"
        result = ops.result(self._linear(hidden, head))
        result.output(0).tensor.set_names({"logits"})
        parameters = [self._input_ids, self._attention_mask, self._position_ids, self._beam_idx]
        return openvino.Model([result], self._sinks, parameters, "llama")

    def _rotations(self) -> tuple[Any, Any]:
        frequencies = ops.constant(inverse_frequencies(self._config).reshape(1, 1, -1).astype(np.float32))
        places = ops.unsqueeze(ops.convert(self._position_ids, np.float32), _ints(2))
        half = ops.multiply(places, frequencies)  # batch, q_len, head_dim / 2
        angles = ops.unsqueeze(ops.concat([half, half], 2), _ints(1))
        return ops.cos(angles), ops.sin(angles)

    def _mask(self) -> Any:
        """A query looks at keys up to its own place; the paged attention of the engine replaces it by its own."""
        kv_len = ops.squeeze(ops.gather(ops.shape_of(self._attention_mask), _ints([1]), _ints(0)), _ints(0))
        kv_places = ops.range(_ints(0), kv_len, _ints(1), "i64")
        places = ops.unsqueeze(self._position_ids, _ints([1, 3]))
        may_look = ops.less_equal(ops.unsqueeze(kv_places, _ints([0, 1, 2])), places)
        return ops.select(may_look, ops.constant(0.0, np.float32), ops.constant(_LOWEST, np.float32))

    def _norm(self, hidden: Any, name: str) -> Any:
        square = ops.reduce_mean(ops.power(hidden, ops.constant([[[2.0]]], np.float32)), _ints([2]), keep_dims=True)
        epsilon = ops.constant([[[self._config["rms_norm_eps"]]]], np.float32)
        scale = ops.divide(ops.constant([[[1.0]]], np.float32), ops.sqrt(ops.add(square, epsilon)))
        weight = ops.constant(self._weight_by_name[f"{name}.weight"].reshape(1, 1, -1))
        return ops.multiply(ops.multiply(scale, hidden), weight)

    def _linear(self, hidden: Any, name: str) -> Any:
        product = ops.matmul(hidden, ops.constant(self._weight_by_name[f"{name}.weight"]), False, True)  # noqa: FBT003
        bias = self._weight_by_name.get(f"{name}.bias")
        return product if bias is None else ops.add(product, ops.constant(bias.reshape(1, 1, -1)))

    def _mlp(self, hidden: Any, name: str) -> Any:
        gate = self._activated(self._linear(hidden, f"{name}.gate_proj"))
        return self._linear(ops.multiply(gate, self._linear(hidden, f"{name}.up_proj")), f"{name}.down_proj")

    def _activated(self, gate: Any) -> Any:
        match self._config.get("hidden_act", "silu"):
            case "silu":
                return ops.swish(gate)
            case "gelu":
                return ops.gelu(gate, "ERF")
            case other:
                message = f"activation {other!r} is none of silu, gelu"
                raise Refused(message)

    def _heads(self, hidden: Any, num_heads: int) -> Any:
        split = ops.reshape(hidden, _ints([0, 0, num_heads, self._head_dim]), special_zero=True)
        return ops.transpose(split, _ints([0, 2, 1, 3]))  # batch, heads, q_len, head_dim

    def _rotated(self, heads: Any, cos: Any, sin: Any) -> Any:
        middle = self._head_dim // 2
        first = ops.slice(heads, _ints([0]), _ints([middle]), _ints([1]), _ints([3]))
        second = ops.slice(heads, _ints([middle]), _ints([self._head_dim]), _ints([1]), _ints([3]))
        turned = ops.concat([ops.multiply(second, ops.constant([[[[-1.0]]]], np.float32)), first], 3)
        return ops.add(ops.multiply(heads, cos), ops.multiply(turned, sin))

    def _attention(self, hidden: Any, name: str, cos: Any, sin: Any, mask: Any) -> Any:
        num_heads, num_kv_heads = self._config["num_attention_heads"], self._config["num_key_value_heads"]
        name = f"{name}.self_attn"
        query = self._rotated(self._heads(self._linear(hidden, f"{name}.q_proj"), num_heads), cos, sin)
        key = self._rotated(self._heads(self._linear(hidden, f"{name}.k_proj"), num_kv_heads), cos, sin)
        value = self._heads(self._linear(hidden, f"{name}.v_proj"), num_kv_heads)
        key = self._repeated(self._with_past(key, f"{name}.key"), num_heads // num_kv_heads)
        value = self._repeated(self._with_past(value, f"{name}.value"), num_heads // num_kv_heads)
        attended = ops.scaled_dot_product_attention(query, key, value, mask)
        joined = ops.transpose(attended, _ints([0, 2, 1, 3]))
        return self._linear(ops.reshape(joined, _ints([0, 0, num_heads * self._head_dim]), True), f"{name}.o_proj")  # noqa: FBT003

    def _with_past(self, heads: Any, name: str) -> Any:
        num_kv_heads = self._config["num_key_value_heads"]
        shape = ops.concat([self._batch, _ints([num_kv_heads]), _ints([0]), _ints([self._head_dim])], 0)
        empty = ops.broadcast(ops.constant(0.0, np.float32), shape)
        variable = ops.read_value(empty, name, np.float32, [-1, num_kv_heads, -1, self._head_dim])
        whole = ops.concat([ops.gather(variable, self._beam_idx, _ints(0)), heads], 2)
        self._sinks.append(ops.assign(whole, name))
        return whole

    def _repeated(self, heads: Any, number: int) -> Any:
        """Each key and value head as often as query heads share it."""
        if number == 1:
            return heads
        num_kv_heads = self._config["num_key_value_heads"]
        shape = ops.concat([self._batch, *(_ints([size]) for size in (num_kv_heads, number, 1, self._head_dim))], 0)
        copies = ops.broadcast(ops.unsqueeze(heads, _ints(2)), shape, broadcast_spec="BIDIRECTIONAL")
        return ops.reshape(copies, _ints([0, num_kv_heads * number, -1, self._head_dim]), special_zero=True)


def _parameter(name: str, shape: list[int], dtype: Any) -> Any:
    parameter = ops.parameter(shape, dtype)
    parameter.set_friendly_name(name)  # by which the engine finds it
    parameter.output(0).tensor.set_names({name})
    return parameter


def _ints(values: Any) -> Any:
    return ops.constant(values, np.int64)

"""The model that is put together computes what the reference computes, with an eager stand-in for the operations."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu
from transformers import LlamaForCausalLM

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.engines.adapter import Refused
from oracle.families import FamilySpec, write_family_checkpoint
from oracle.family_shapes import shapes_of

pytestmark = pytest.mark.without_shape_checks  # which cannot tell classes of a module that is imported twice

MODULE = "oracle.engines.adapters.llama_openvino"

TOKEN_IDS = (3, 14, 15, 92, 65, 35, 8)


class Node(np.ndarray):
    """An array that lets itself be named, as nodes of a graph do."""

    def set_friendly_name(self, name):
        """Takes a name."""

    def output(self, _):
        return SimpleNamespace(tensor=SimpleNamespace(set_names=lambda _: None))


class EagerOps:
    """The operations of OpenVINO that are used, computed at once."""

    def __init__(self, inputs, state):
        self.inputs = list(inputs)
        self.state = state

    def __getattr__(self, name):
        functions: dict[str, Any] = {
            "add": np.add,
            "multiply": np.multiply,
            "divide": np.divide,
            "power": np.power,
            "sqrt": np.sqrt,
            "cos": np.cos,
            "sin": np.sin,
            "less_equal": np.less_equal,
            "select": np.where,
            "concat": np.concatenate,
            "convert": lambda value, dtype: np.asarray(value).astype(dtype),
            "gather": lambda value, ids, axis: np.take(value, ids, axis=int(axis)),
            "shape_of": lambda value: np.array(value.shape),
            "unsqueeze": lambda value, axes: np.expand_dims(value, tuple(np.atleast_1d(axes))),
            "squeeze": lambda value, axis: np.squeeze(value, int(axis)),
            "range": lambda start, stop, step, _: np.arange(int(start), int(stop), int(step)),
            "reduce_mean": lambda value, axes, keep_dims: value.mean(tuple(axes), keepdims=keep_dims),
            "transpose": np.transpose,
            "swish": lambda value: value / (1.0 + np.exp(-value)),
            "gelu": lambda value, mode: gelu(torch.tensor(value), approximate={"ERF": "none", "TANH": "tanh"}[mode]),
            "broadcast": lambda value, shape, **_: np.broadcast_to(
                value, np.broadcast_shapes(value.shape, tuple(shape))
            ),
            "result": lambda value: value,
        }
        function = functions[name]
        return lambda *arguments, **options: np.asarray(function(*arguments, **options)).view(Node)

    def parameter(self, shape, _):
        assert len(shape) == np.ndim(self.inputs[0])
        return np.asarray(self.inputs.pop(0)).view(Node)

    def constant(self, value, dtype=None):
        return np.asarray(value, dtype).view(Node)

    def matmul(self, left, right, is_left_turned, is_right_turned):
        assert (is_left_turned, is_right_turned) == (False, True)
        return left @ right.T

    def reshape(self, value, shape, special_zero):
        assert special_zero
        return value.reshape([value.shape[place] if size == 0 else size for place, size in enumerate(shape)])

    def slice(self, value, start, stop, step, axis):
        assert (int(step[0]), int(axis[0])) == (1, 3)
        return value[..., int(start[0]) : int(stop[0])]

    def scaled_dot_product_attention(self, query, key, value, mask):
        scores = query @ key.swapaxes(2, 3) / query.shape[-1] ** 0.5 + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ value

    def read_value(self, empty, name, *_):
        return self.state.get(name, empty)

    def assign(self, value, name):
        self.state[name] = value
        return name


class Model:
    """What comes out of a graph that was computed at once."""

    def __init__(self, results, *_):
        self.results = results


@pytest.fixture
def computed(import_with, stand_in, tmp_path):
    """Gives a function that builds a model and gives what it computes: its logits, and what was saved where."""

    def compute(folder, token_ids, state, **options):
        first = next(iter(state.values())).shape[2] if state else 0
        places = np.arange(first, first + len(token_ids))
        inputs = [[token_ids], np.ones((1, first + len(token_ids)), int), [places], [0]]
        saved = {}
        openvino = stand_in(
            "openvino",
            opset13=EagerOps(inputs, state),
            Model=Model,
            save_model=lambda model, path, **_: saved.update({path.name: model}),
        )
        module = import_with(MODULE, openvino=openvino)
        module.write_llama_openvino(folder, tmp_path, **options)
        return np.asarray(saved["openvino_model.xml"].results[0])[0]

    return compute


def reference_logits(folder):
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([TOKEN_IDS])).logits[0].numpy()


SPECS = {
    "plain": CheckpointSpec(),
    "grouped heads of another width": CheckpointSpec(hidden_size=48, num_heads=6, num_kv_heads=2, head_dim=16),
    "biases": CheckpointSpec(attention_bias=True, mlp_bias=True),
    "tied": CheckpointSpec(tie_word_embeddings=True),
    "llama3": CheckpointSpec(rope_type="llama3"),
    "linear": CheckpointSpec(rope_type="linear"),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_model_computes_what_the_reference_computes(computed, tmp_path, spec):
    folder = write_checkpoint(spec, tmp_path / "checkpoint")
    np.testing.assert_allclose(computed(folder, TOKEN_IDS, {}), reference_logits(folder), atol=2e-4)


@pytest.mark.parametrize("shape", shapes_of("llama"))
def test_every_shape_of_the_family_is_computed_or_refused(computed, tmp_path, shape):
    """One that was taken for another looked like a fault of the engine: its activation is drawn as well."""
    folder = write_family_checkpoint(FamilySpec(shape), tmp_path / "checkpoint")
    try:
        logits = computed(folder, TOKEN_IDS, {})
    except Refused:
        assert shape in ("llama:yarn-rope", "llama:dynamic-rope")
    else:
        np.testing.assert_allclose(logits, reference_logits(folder), atol=2e-4)


def test_model_refuses_an_unknown_activation(computed, tmp_path):
    folder = write_checkpoint(CheckpointSpec(), tmp_path / "checkpoint")
    path = folder / "config.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"silu"', '"relu"'), encoding="utf-8")
    with pytest.raises(Refused, match="relu"):
        computed(folder, TOKEN_IDS, {})


def test_model_goes_on_from_its_states(computed, tmp_path):
    folder = write_checkpoint(SPECS["grouped heads of another width"], tmp_path / "checkpoint")
    state: dict[str, Any] = {}
    first = computed(folder, TOKEN_IDS[:4], state)
    rest = computed(folder, TOKEN_IDS[4:], state)
    np.testing.assert_allclose(np.concatenate([first, rest]), reference_logits(folder), atol=2e-4)


def test_model_can_be_cut_off_after_a_layer(computed, tmp_path):
    folder = write_checkpoint(CheckpointSpec(num_layers=3), tmp_path / "checkpoint")
    state: dict[str, Any] = {}
    computed(folder, TOKEN_IDS, state, num_layers=1)
    assert sorted(state) == ["model.layers.0.self_attn.key", "model.layers.0.self_attn.value"]


def test_mute_tokenizer_gives_one_token_for_each_text(import_with, stand_in, tmp_path):
    saved = {}
    openvino = stand_in(
        "openvino",
        opset13=EagerOps([np.zeros(3)], {}),
        Type=SimpleNamespace(string="string"),
        Model=Model,
        save_model=lambda model, path: saved.update({path.name: model}),
    )
    import_with(MODULE, openvino=openvino).write_mute_tokenizer(tmp_path)
    ids, mask = saved["openvino_tokenizer.xml"].results
    assert ids.tolist() == [[0]] * 3
    assert mask.tolist() == [[1]] * 3

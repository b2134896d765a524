"""Loading a folder: every parameter from its weight, and refusals that name the file, the value and a way out."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from refinfer import load_model
from refinfer.errors import (
    CheckpointError,
    ConfigError,
    MissingWeightError,
    UnexpectedWeightError,
    UnsupportedModelError,
    WeightShapeError,
)
from refinfer.model.linear import Linear
from refinfer.numerics import InvariantNumerics, PlainNumerics

DTYPES = ["float32", "float64", "bfloat16", "float16"]
DTYPE_BY_NAME = {name: getattr(torch, name) for name in DTYPES}
FILE = "model.safetensors"
BIASES = {"attention_bias": True, "mlp_bias": True}


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def with_biases(tiny, tmp_path):
    """A good checkpoint in which every projection has a bias."""
    raw_config = tiny.raw_config | BIASES
    return tiny.write_checkpoint(tmp_path / "biases", raw_config, tiny.drawn_weights(raw_config))


@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_load_model_fills_every_parameter_with_its_weight(tiny, tmp_path, stored, dtype):
    raw_config = tiny.raw_config | BIASES
    weights = tiny.drawn_weights(raw_config, dtype=DTYPE_BY_NAME[stored])
    model = load_model(tiny.write_checkpoint(tmp_path / "checkpoint", raw_config, weights), dtype=dtype)
    parameters = dict(model.named_parameters())
    assert parameters.keys() == weights.keys()
    assert model.dtype is DTYPE_BY_NAME[dtype]
    assert not model.training
    for name, parameter in parameters.items():
        assert not parameter.requires_grad
        assert parameter.dtype is DTYPE_BY_NAME[dtype]
        assert torch.equal(parameter, weights[name].to(parameter.dtype))


def test_load_model_names_parameters_as_reference_does(tiny, with_biases):
    ours = {name: parameter.shape for name, parameter in load_model(with_biases).named_parameters()}
    reference = tiny.open_reference(with_biases)
    assert ours == {name: parameter.shape for name, parameter in reference.named_parameters()}


def test_load_model_takes_a_path_as_text(folder):
    assert torch.equal(load_model(str(folder)).lm_head.weight, load_model(folder).lm_head.weight)


def test_models_never_share_memory_with_each_other_or_with_the_file(folder):
    first, second = load_model(folder), load_model(folder)
    expected = load_file(folder / FILE)["model.norm.weight"]
    with torch.no_grad():
        first.model.norm.weight.zero_()
    assert torch.equal(second.model.norm.weight, expected)
    assert torch.equal(load_file(folder / FILE)["model.norm.weight"], expected)


@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_load_model_takes_the_dtype_of_config_when_it_is_to_choose(folder, key, stored):
    change_config(folder, **{key: stored})
    assert load_model(folder, dtype="auto").dtype is DTYPE_BY_NAME[stored]
    assert load_model(folder).dtype is torch.float32


@pytest.mark.parametrize("stored", DTYPES)
def test_load_model_takes_the_dtype_of_the_file_when_config_names_none(tiny, folder, stored):
    save_file(tiny.drawn_weights(tiny.raw_config, dtype=DTYPE_BY_NAME[stored]), folder / FILE)
    assert load_model(folder, dtype="auto").dtype is DTYPE_BY_NAME[stored]


@pytest.mark.parametrize("dtype", ["float8", "int8", "torch.float32", ""])
def test_load_model_refuses_an_unknown_dtype_that_was_asked_for(folder, dtype):
    with pytest.raises(ConfigError, match="choose one of float32, float64, bfloat16, float16") as caught:
        load_model(folder, dtype=dtype)
    assert repr(dtype) in str(caught.value)


def test_load_model_refuses_an_unknown_dtype_of_config_when_it_is_to_choose(folder):
    change_config(folder, dtype="int8")
    with pytest.raises(ConfigError, match=r"config\.json: dtype 'int8' is unknown; choose one of float32"):
        load_model(folder, dtype="auto")
    assert load_model(folder).dtype is torch.float32, "who names a dtype does not depend on the file's"


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_load_model_refuses_a_weight_stored_in_an_unknown_dtype(tiny, folder, dtype):
    weights = tiny.drawn_weights(tiny.raw_config)
    save_file({name: weight.to(torch.int8) for name, weight in weights.items()}, folder / FILE)
    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors: weight .* is stored as I8.*use a checkpoint"):
        load_model(folder, dtype=dtype)


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize("value", ["false", 0, None])
def test_load_model_refuses_a_manner_that_is_neither_true_nor_false(folder, value):
    with pytest.raises(ConfigError, match=f"batch_invariant is {value!r}; it must be True or False"):
        load_model(folder, batch_invariant=value)


def test_load_model_takes_the_invariant_manner_unless_told_otherwise(folder):
    """The class itself, since the invariant manner is a plain one with some operations replaced."""
    assert type(load_model(folder).numerics) is InvariantNumerics
    assert type(load_model(folder, batch_invariant=True).numerics) is InvariantNumerics
    assert type(load_model(folder, batch_invariant=False).numerics) is PlainNumerics


@pytest.mark.parametrize("batch_invariant", [True, False])
def test_load_model_readies_every_product_by_the_weights_of_the_file(monkeypatch, folder, batch_invariant):
    """A pass that had to ready one would find out late that no way keeps the promise."""
    model = load_model(folder, dtype="float64", batch_invariant=batch_invariant)
    monkeypatch.setattr(Linear, "prepare", None)
    for module in model.modules():
        if isinstance(module, Linear):
            rows = torch.ones(2, module.weight.shape[1], dtype=torch.float64)
            torch.testing.assert_close(module(rows), rows @ module.weight.T)


def test_load_model_refuses_a_path_that_is_no_folder(folder):
    for path in (folder / FILE, folder / "absent"):
        with pytest.raises(
            CheckpointError, match=r"is not a folder; give the folder that holds config\.json"
        ) as caught:
            load_model(path)
        assert str(path) in str(caught.value)


def test_load_model_refuses_a_folder_without_config(folder):
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        load_model(folder)


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_load_model_refuses_a_file_without_weights(folder, dtype):
    save_file({}, folder / FILE)
    with pytest.raises(MissingWeightError, match=r"weights that config\.json asks for are in no file"):
        load_model(folder, dtype=dtype)


def test_load_model_refuses_a_checkpoint_without_one_of_its_weights(with_biases):
    weights = load_file(with_biases / FILE)
    for name in weights:
        save_file({other: weight for other, weight in weights.items() if other != name}, with_biases / FILE)
        with pytest.raises(MissingWeightError, match=r"config\.json .* in no file, .*copy or download") as caught:
            load_model(with_biases)
        assert name in str(caught.value)
        assert caught.value.names == [name]


def test_load_model_refuses_a_weight_of_another_shape(with_biases):
    weights = load_file(with_biases / FILE)
    for name, weight in weights.items():
        for wrong in (torch.cat([weight, weight]), weight[None], weight.flatten()[:-1]):
            save_file(weights | {name: wrong.contiguous()}, with_biases / FILE)
            with pytest.raises(WeightShapeError, match=r"config\.json gives it .*belongs to another model") as caught:
                load_model(with_biases)
            assert str(caught.value).startswith(f"{FILE}: weight {name} has shape {tuple(wrong.shape)}")
            assert (caught.value.stored, caught.value.expected) == (tuple(wrong.shape), tuple(weight.shape))


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.2.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.q_proj.weight_scale",
        "lm_head.bias",
        "embed_tokens.weight",
        "model.layers.0.self_attn.rotary_embedding.inv_freq",
    ],
)
def test_load_model_refuses_an_unexpected_weight(folder, name):
    save_file(load_file(folder / FILE) | {name: torch.ones(12)}, folder / FILE)
    with pytest.raises(UnexpectedWeightError, match=r"for which config\.json has no place \(1 such") as caught:
        load_model(folder)
    assert str(caught.value).startswith(f"{FILE} holds {name}")
    assert caught.value.names == [name]


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.{}.self_attn.rotary_emb.inv_freq",
        "model.layers.{}.self_attn.rotary_emb.cos_cached",
        "model.layers.{}.self_attn.rotary_emb.sin_cached",
        "model.layers.{}.rotary_emb.inv_freq",
        "model.rotary_emb.inv_freq",
        "model.rotary_emb.original_inv_freq",
        "model.rotary_emb.cos_sin_cache",
        "model.layers.1.self_attn.rotary_emb.max_seq_len_cached",
        "rope.freqs",
    ],
)
def test_load_model_leaves_out_what_older_files_store_and_config_gives(folder, name):
    """A wrong one in the file must not reach the model."""
    expected = load_model(folder)
    stored = {name.format(layer): torch.zeros(3) for layer in range(2)}
    save_file(load_file(folder / FILE) | stored, folder / FILE)
    found = load_model(folder)
    assert torch.equal(found.model.rotary_emb.frequencies, expected.model.rotary_emb.frequencies)
    assert dict(found.named_parameters()).keys() == dict(expected.named_parameters()).keys()


def test_load_model_refuses_biases_that_config_does_not_have_and_their_absence(with_biases, folder):
    change_config(with_biases, mlp_bias=False)
    with pytest.raises(UnexpectedWeightError, match=r"mlp\.down_proj\.bias"):
        load_model(with_biases)
    change_config(folder, attention_bias=True)
    with pytest.raises(MissingWeightError, match=r"the first is model\.layers\.0\.self_attn\.k_proj\.bias"):
        load_model(folder)


@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("stored", DTYPES)
def test_load_model_reads_files_of_torch_save(tiny, tmp_path, num_shards, stored):
    weights = tiny.drawn_weights(tiny.raw_config, dtype=DTYPE_BY_NAME[stored])
    folder = tiny.write_checkpoint(tmp_path / "checkpoint", tiny.raw_config, weights, num_shards)
    for path in folder.glob("*.safetensors"):
        torch.save(load_file(path), folder / f"pytorch_{path.stem}.bin")
        path.unlink()
    index = folder / "model.safetensors.index.json"
    if index.exists():
        text = index.read_text().replace("model-", "pytorch_model-").replace(".safetensors", ".bin")
        (folder / "pytorch_model.bin.index.json").write_text(text)
        index.unlink()
    model = load_model(folder, dtype="auto")
    assert model.dtype is DTYPE_BY_NAME[stored]
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name])


@pytest.mark.parametrize("value", [10**5, 10**12, 10**30], ids=str)
@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ],
)
def test_load_model_refuses_sizes_of_config_that_no_file_could_hold(folder, key, value):
    """Before it builds anything of that size, which would end in an allocator's error, or never."""
    change_config(folder, **{key: value})
    words = rf"num_key_value_heads {value} .* does not divide" if "_value_" in key else rf"{key} {value}"
    with pytest.raises((MissingWeightError, ConfigError), match=words):
        load_model(folder)


def test_load_model_refuses_sizes_where_all_weights_are_empty(tiny, folder):
    save_file({name: torch.zeros(0) for name in tiny.weight_shapes(tiny.raw_config)}, folder / FILE)
    change_config(folder, head_dim=10**12)
    with pytest.raises(MissingWeightError, match=r"all weights have 0 bytes together"):
        load_model(folder)


def test_load_model_refuses_a_truncated_file(folder):
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a whole safetensors file"):
        load_model(folder)
    (folder / FILE).write_bytes(content)
    load_model(folder)


def test_load_model_refuses_quantised_weights_by_their_config(folder):
    change_config(folder, quantization_config={"quant_method": "awq", "bits": 4})
    with pytest.raises(
        UnsupportedModelError, match=r"quantization_config .*config\.json.* use a checkpoint without it"
    ):
        load_model(folder)

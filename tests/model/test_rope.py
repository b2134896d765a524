"""Rotary modules: tables in the model's dtype from angles that are wider, and the turning of both sides."""

import pytest
import torch

from refinfer.numerics import PlainNumerics, inverse_frequencies


@pytest.mark.parametrize(
    ("dtype", "computed_in"),
    [("float32", torch.float32), ("float64", torch.float64), ("bfloat16", torch.float32), ("float16", torch.float32)],
)
def test_rotary_embedding_computes_wide_and_gives_the_models_dtype(model_by_dtype, dtype, computed_in):
    model = model_by_dtype[dtype]
    rotary = model.get_submodule("model.rotary_emb")
    assert torch.equal(rotary.frequencies, inverse_frequencies(model.config.rope, 6, computed_in))
    cos, sin = rotary(torch.tensor([0, 300]))
    assert {cos.dtype, sin.dtype} == {model.dtype}
    assert cos.shape == sin.shape == (2, 6)
    assert torch.equal(cos[:, :3], cos[:, 3:])
    assert torch.equal(cos[0], torch.ones(6, dtype=model.dtype))


def test_rotary_turn_turns_queries_and_keys_by_the_same_tables(model_by_dtype):
    model = model_by_dtype["float64"]
    queries = torch.linspace(-1, 1, 48, dtype=torch.float64).reshape(2, 4, 6)
    keys = torch.linspace(1, 3, 24, dtype=torch.float64).reshape(2, 2, 6)
    cos, sin = model.get_submodule("model.rotary_emb")(torch.tensor([3, 0]))
    turned_queries, turned_keys = model.get_submodule("model.layers.0.self_attn.rope")(queries, keys, cos, sin)
    assert torch.equal(turned_queries, PlainNumerics().rotate(queries, cos, sin))
    assert torch.equal(turned_keys, PlainNumerics().rotate(keys, cos, sin))
    assert not torch.equal(turned_keys[0], keys[0])
    assert torch.equal(turned_keys[1], keys[1]), "position 0 turns by nothing"


def test_rotary_frequencies_are_no_parameters(model_by_dtype):
    """They follow from config.json, so a checkpoint neither has nor needs them."""
    assert not list(model_by_dtype["float32"].get_submodule("model.rotary_emb").parameters())

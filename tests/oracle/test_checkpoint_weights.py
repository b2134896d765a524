import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from oracle import checkpoint_weights
from oracle.checkpoint_files import encode
from oracle.checkpoint_spec import CheckpointSpec
from oracle.checkpoint_weights import EMBEDDING_NAME, HEAD_NAME, make_weights, weight_blocks, weight_shapes
from oracle.checkpoints import cached_checkpoint
from oracle.reference import Reference
from oracle.witness import Witness

EVERYTHING = CheckpointSpec(
    seed=7,
    num_heads=4,
    num_kv_heads=2,
    head_dim=20,
    vocab_size=97,
    tie_word_embeddings=True,
    attention_bias=True,
    mlp_bias=True,
    num_tied_rows=5,
    num_near_tied_rows=3,
)

SHA256_BY_NAME = {
    "everything": (EVERYTHING, "2753f7e7ac4c180eb21a72753eefed2bd6793c12056de52348e172df7d9c8190"),
    "untied": (
        replace(EVERYTHING, tie_word_embeddings=False),
        "2c44c94d2e0c9eb74047ce9083a11260d95cea145c65ff46debce272235697e7",
    ),
    "single head": (CheckpointSpec(num_heads=1), "b9336ea9be6dcfbe4b433d5c40efc4e399fbd84599cb6231712a5dec35541b0b"),
    "usual": (CheckpointSpec(sensitive=False), "30d8f70308e2ffe3e8b8336d3ef7be13b5b0d74c7cd70678b923ebff5a48f1db"),
}


@pytest.mark.parametrize(("spec", "sha256"), SHA256_BY_NAME.values(), ids=SHA256_BY_NAME)
def test_weights_have_the_same_bytes_on_every_machine(spec, sha256):
    """A generated case that failed elsewhere must be the same case here."""
    digest = hashlib.sha256()
    for name, weight in make_weights(spec):
        digest.update(name.encode() + weight.astype("<f4").tobytes())
    assert digest.hexdigest() == sha256


@pytest.mark.parametrize("tie_word_embeddings", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_weights_have_the_names_and_shapes_of_the_reference(tie_word_embeddings, biases):
    spec = CheckpointSpec(tie_word_embeddings=tie_word_embeddings, attention_bias=biases, mlp_bias=biases)
    model = LlamaForCausalLM(LlamaConfig(**spec.raw_config()))
    shape_by_name = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert weight_shapes(spec) == shape_by_name
    assert {name: weight.shape for name, weight in make_weights(spec)} == shape_by_name


@pytest.mark.parametrize("block_size", [330, 1000])
def test_block_size_does_not_change_weights(monkeypatch, block_size):
    """Blocks of 5 rows, which the smaller size would make if rows were not kept in fours, cut a tied pair."""
    whole = dict(make_weights(EVERYTHING))
    monkeypatch.setattr(checkpoint_weights, "_BLOCK_SIZE", block_size)
    assert len(list(weight_blocks(EVERYTHING, EMBEDDING_NAME))) > 5
    for name, weight in make_weights(EVERYTHING):
        assert np.array_equal(weight, whole[name]), name


def test_no_two_weights_share_their_numbers():
    spec = CheckpointSpec(attention_bias=True, mlp_bias=True)
    firsts = [float(w.flat[0] / abs(w).max()) for seed in range(3) for _, w in make_weights(replace(spec, seed=seed))]
    assert len(set(firsts)) == len(firsts)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("tie_word_embeddings", [False, True])
def test_tied_and_near_tied_rows_follow_their_source_on_disk(dtype, tie_word_embeddings):
    spec = replace(EVERYTHING, dtype=dtype, tie_word_embeddings=tie_word_embeddings)
    weight = dict(make_weights(spec))[EMBEDDING_NAME if tie_word_embeddings else HEAD_NAME]
    kind = np.float32 if dtype == "float64" else None
    bits = encode(weight, dtype).astype(kind or encode(weight, dtype).dtype)
    steps = np.abs(np.diff(bits.view("<u2" if bits.itemsize == 2 else "<u4").astype(np.int64), axis=0))
    assert (steps == 0).all(axis=1).sum() == 5
    assert (steps == 1).all(axis=1).sum() == 3


@pytest.mark.parametrize("tie_word_embeddings", [False, True])
def test_tied_rows_tie_exactly_and_near_tied_rows_almost(tie_word_embeddings):
    spec = CheckpointSpec(tie_word_embeddings=tie_word_embeddings, num_tied_rows=16, num_near_tied_rows=16)
    logits = Reference.open(cached_checkpoint(spec)).logits([token * 37 % 131 for token in range(400)])
    best = logits.topk(2).values
    gaps = best[:, 0] - best[:, 1]
    assert 0.05 < (gaps == 0).float().mean() < 0.5
    assert ((gaps > 0) & (gaps < 1e-5)).float().mean() > 0.05
    tied = [row for row in range(1, 131) if torch.equal(logits[:, row], logits[:, row - 1])]
    assert len(tied) == 16


@pytest.mark.parametrize("seed", range(6))
def test_logits_are_moderate_and_rounding_stays_far_below_them(seed):
    """Tolerances follow the noise, so a model on which it is large would hide faults."""
    spec = CheckpointSpec(seed=seed, num_layers=4 - seed % 4, hidden_size=(64, 48, 100)[seed % 3], num_heads=2)
    folder = cached_checkpoint(spec)
    token_ids = np.random.Generator(np.random.Philox(key=seed)).integers(0, spec.vocab_size, 48).tolist()
    exact = Witness.open(folder).logits(token_ids)
    assert 1.5 < exact.std() < 2.5
    assert np.abs(Reference.open(folder).logits(token_ids).numpy() - exact).max() < 1e-4


def test_some_heads_are_peaked_and_others_flat():
    spec = CheckpointSpec(num_heads=4, num_kv_heads=4)
    weight = dict(make_weights(spec))["model.layers.0.self_attn.q_proj.weight"]
    spreads = weight.reshape(4, -1).std(axis=1) * math.sqrt(spec.hidden_size)
    assert spreads == pytest.approx([2.5, 0.5, 1.5, 1.0], rel=0.05)

"""The second witness: it agrees with the reference, looks at no later token, and shows a planted fault."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oracle import witness as witness_module
from oracle.activations import canonical_names
from oracle.divergence import first_divergence
from oracle.errors import ReferenceUnavailable, ScenarioError
from oracle.reference import Reference
from oracle.witness import Witness, inverse_frequencies, silu
from oracle.witness_checkpoint import SETTINGS_BY_ROPE_TYPE

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
"""With base and length so small, a head of 10 has pairs in all three bands."""

LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}
EVERYTHING = {"rope_parameters": LLAMA3_ROPE, "attention_bias": True, "mlp_bias": True, "head_dim": 10}
SETTINGS: dict[str, dict[str, Any]] = {
    "simplest": {},
    "tied": {"tie_word_embeddings": True},
    "heads wider than the model": {"head_dim": 10},
    "no shared heads": {"num_key_value_heads": 6},
    "one shared head": {"num_key_value_heads": 1},
    "linear scaling": {"rope_parameters": LINEAR_ROPE},
    "llama3 scaling": {"rope_parameters": LLAMA3_ROPE},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "smaller epsilon": {"rms_norm_eps": 1e-6},
    "everything": EVERYTHING,
}

LOGITS_BOUND = 1e-4
"""The reference errs by up to 3.6e-5 here, in float32; the witness does not err at this scale."""

ACTIVATION_BOUND = 2e-5
"""Share of an activation's largest value; up to 5.3e-6 was seen."""

TOKEN_IDS = np.random.default_rng(0).integers(0, 131, 60).tolist()


@pytest.fixture(params=list(SETTINGS.values()), ids=list(SETTINGS), scope="module")
def folder(request, save_llama):
    return save_llama(**request.param)


@pytest.fixture(scope="module")
def reference_activations(save_llama):
    return Reference.open(save_llama(**EVERYTHING)).activations(TOKEN_IDS)


@pytest.fixture
def witness(save_llama):
    return Witness.open(save_llama(**EVERYTHING))


def divergence_from(reference_activations, witness):
    activations = {name: torch.from_numpy(rows) for name, rows in witness.activations(TOKEN_IDS).items()}
    return first_divergence(activations, reference_activations, list(activations), ACTIVATION_BOUND)


def test_witness_matches_reference_logits_and_activations(folder):
    reference, witness = Reference.open(folder), Witness.open(folder)
    assert np.abs(witness.logits(TOKEN_IDS) - reference.logits(TOKEN_IDS).numpy()).max() < LOGITS_BOUND
    assert divergence_from(reference.activations(TOKEN_IDS), witness) is None


def test_witness_activations_have_the_canonical_names_in_order(witness):
    activations = witness.activations(TOKEN_IDS)
    assert tuple(activations) == canonical_names(witness.config.num_layers)
    assert np.array_equal(activations["lm_head"], witness.logits(TOKEN_IDS))


@pytest.mark.parametrize("num_tokens", [1, 2, 7, 59])
def test_witness_logits_of_a_prefix_equal_those_of_the_whole(witness, num_tokens):
    """Float64 through and through: a float32 step anywhere would leave 1e-7 between the two."""
    difference = witness.logits(TOKEN_IDS[:num_tokens]) - witness.logits(TOKEN_IDS)[:num_tokens]
    assert np.abs(difference).max() < 1e-12


def test_witness_logits_depend_on_every_earlier_token(witness):
    logits = witness.logits(TOKEN_IDS[:20])
    for position in range(20):
        changed = witness.logits(
            [*TOKEN_IDS[:position], (TOKEN_IDS[position] + 1) % 131, *TOKEN_IDS[position + 1 : 20]]
        )
        assert np.abs(changed - logits).max(axis=1)[position:].min() > LOGITS_BOUND


def test_silu_gives_zero_where_the_exponential_overflows():
    assert silu(np.array([[-1000.0, 0.0, 1000.0]])).tolist() == [[0.0, 0.0, 1000.0]]


def test_llama3_scaling_meets_all_three_bands():
    """Else the settings above would show a fault in one band only."""
    unscaled = inverse_frequencies(LLAMA3_ROPE | {"rope_type": "default"}, head_dim=10)
    shares = inverse_frequencies(LLAMA3_ROPE, head_dim=10) / unscaled
    assert shares.max() == 1
    assert np.isclose(shares.min(), 1 / 8)
    assert ((shares > 0.2) & (shares < 0.9)).any()


@pytest.mark.parametrize("rope_type", SETTINGS_BY_ROPE_TYPE)
def test_every_rope_type_that_the_witness_reads_has_a_formula(rope_type):
    assert inverse_frequencies(LLAMA3_ROPE | {"rope_type": rope_type}, head_dim=10).shape == (5,)


def test_inverse_frequencies_refuse_a_rope_type_without_a_formula():
    with pytest.raises(ScenarioError, match=r"RoPE type 'yarn' has no formula; .* default, linear, llama3") as caught:
        inverse_frequencies(LLAMA3_ROPE | {"rope_type": "yarn"}, head_dim=10)
    assert caught.value.rope_type == "yarn"


def with_norm_epsilon(witness, _monkeypatch):
    return replace(witness, config=replace(witness.config, norm_eps=1e-6))


def with_neighbours_paired(witness, monkeypatch):
    def rotate_neighbours(vectors, angles):
        turned = np.empty_like(vectors)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        even, odd = vectors[..., ::2], vectors[..., 1::2]
        turned[..., ::2], turned[..., 1::2] = even * cos - odd * sin, odd * cos + even * sin
        return turned

    monkeypatch.setattr(witness_module, "rotate", rotate_neighbours)
    return witness


def with_rope_setting(**settings):
    return lambda witness, _monkeypatch: replace(
        witness, config=replace(witness.config, rope=witness.config.rope | settings)
    )


def with_attend(change):
    def plant(witness, monkeypatch):
        attend = witness_module.attend
        monkeypatch.setattr(witness_module, "attend", lambda *tensors: attend(*change(*tensors)))
        return witness

    return plant


def with_silu_left_out(witness, monkeypatch):
    monkeypatch.setattr(witness_module, "silu", lambda inputs: inputs)
    return witness


def without_bias(name):
    return lambda witness, _monkeypatch: replace(witness, config=replace(witness.config, **{name: False}))


def with_head_tied(witness, _monkeypatch):
    weights = witness.weights | {"lm_head.weight": witness.weights["model.embed_tokens.weight"]}
    return replace(witness, weights=weights)


ROTATED_QUERIES = "model.layers.0.self_attn.rotated_queries"
PER_HEAD_OUTPUT = "model.layers.0.self_attn.per_head_output"
FAULTS = {
    "norm epsilon": (with_norm_epsilon, "model.layers.0.input_layernorm"),
    "rotary pairing": (with_neighbours_paired, ROTATED_QUERIES),
    "no rotary scaling": (with_rope_setting(rope_type="default"), ROTATED_QUERIES),
    "linear for llama3": (with_rope_setting(rope_type="linear"), ROTATED_QUERIES),
    "high_freq_factor": (with_rope_setting(high_freq_factor=5.0), ROTATED_QUERIES),
    "original length": (with_rope_setting(original_max_position_embeddings=33), ROTATED_QUERIES),
    "attention scale": (with_attend(lambda q, k, v: (1.01 * q, k, v)), PER_HEAD_OUTPUT),
    "heads dealt round": (
        with_attend(lambda q, k, v: (q, np.tile(k, (1, 3, 1)), np.tile(v, (1, 3, 1)))),
        PER_HEAD_OUTPUT,
    ),
    "no activation": (with_silu_left_out, "model.layers.0.mlp.down_proj"),
    "no attention bias": (without_bias("attention_bias"), "model.layers.0.self_attn.q_proj"),
    "no mlp bias": (without_bias("mlp_bias"), "model.layers.0.mlp.gate_proj"),
    "tied head": (with_head_tied, "lm_head"),
}


@pytest.mark.parametrize(("plant", "expected_name"), FAULTS.values(), ids=FAULTS.keys())
def test_fault_in_witness_is_caught(plant, expected_name, witness, reference_activations, monkeypatch):
    """The comparison above can go red, in the logits and at the very module that is wrong."""
    assert divergence_from(reference_activations, witness) is None
    faulty = plant(witness, monkeypatch)
    difference = np.abs(faulty.logits(TOKEN_IDS) - reference_activations["lm_head"].numpy()).max()
    assert difference > LOGITS_BOUND
    assert divergence_from(reference_activations, faulty).name == expected_name


@pytest.mark.parametrize("token_ids", [[], [-1], [131]], ids=["no token", "negative", "beyond the vocabulary"])
def test_witness_refuses_token_ids_it_has_no_row_for(witness, token_ids):
    with pytest.raises(ScenarioError, match="each from 0 to 130"):
        witness.logits(token_ids)


def test_witness_refuses_a_checkpoint_that_lacks_a_weight(witness):
    weights = {name: weight for name, weight in witness.weights.items() if name != "model.norm.weight"}
    with pytest.raises(ReferenceUnavailable, match=r"no weight model\.norm\.weight"):
        replace(witness, weights=weights).logits(TOKEN_IDS)


def test_witness_refuses_a_folder_without_a_checkpoint(tmp_path):
    with pytest.raises(ReferenceUnavailable, match=r"the witness cannot read .*config\.json"):
        Witness.open(tmp_path)

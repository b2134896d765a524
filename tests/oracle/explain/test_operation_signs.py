import pytest
import torch

from oracle.case import Case
from oracle.checkpoint_spec import CheckpointSpec
from oracle.explain.lone_pass import collect_all
from oracle.explain.operation_signs import PassCheck
from oracle.faults import FAULTS
from oracle.scenario import DTYPES, RequestSpec, Scenario

TOKENS = (5, 9, 2, 61, 17, 3, 3)
SPEC = CheckpointSpec(num_heads=4, num_kv_heads=2, attention_bias=True, mlp_bias=True, rope_type="llama3")


def first_sign(dtype="float32", *, is_invariant=True, spec=SPEC):
    """The first operation that gives something else than follows from its inputs."""
    case = Case(Scenario(requests=(RequestSpec(TOKENS),), checkpoint=spec, dtype=dtype))
    model = case.loaded(batch_invariant=is_invariant).model
    return PassCheck(case.folder, collect_all(model, TOKENS), torch.finfo(model.dtype).eps, TOKENS).first_sign(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_invariant", [True, False])
def test_right_model_has_no_operation_to_blame(dtype, is_invariant):
    assert first_sign(dtype, is_invariant=is_invariant) is None
    assert first_sign(dtype, is_invariant=is_invariant, spec=CheckpointSpec(tie_word_embeddings=True)) is None


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("norm_epsilon", "model.layers.0.input_layernorm"),
        ("activation_gelu", "model.layers.0.mlp.silu(gate) · up"),
        ("gate_and_up_swapped", "model.layers.0.mlp.silu(gate) · up"),
        ("kv_heads_tiled", "model.layers.0.self_attn.per_head_output"),
        ("attention_scale_missing", "model.layers.0.self_attn.per_head_output"),
        ("rope_adjacent_pairs", "model.layers.0.self_attn.rotated_queries"),
        ("causal_mask_one_ahead", "model.layers.0.self_attn.per_head_output"),
    ],
)
@pytest.mark.parametrize("is_invariant", [True, False])
def test_planted_bug_of_the_model_is_laid_to_its_operation(fault, name, is_invariant):
    with FAULTS[fault].planted():
        sign = first_sign(is_invariant=is_invariant)
    assert sign.suspect.operation == name
    assert sign.clue.largest > sign.clue.bound


def test_norm_in_half_precision_is_laid_to_the_norm():
    with FAULTS["norm_in_half_precision"].planted():
        sign = first_sign("bfloat16", is_invariant=False)
    assert "layernorm" in sign.suspect.operation

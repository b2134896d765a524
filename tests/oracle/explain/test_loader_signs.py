from dataclasses import replace

import pytest

from oracle.case import Case
from oracle.checkpoint_spec import CheckpointSpec
from oracle.explain.loader_signs import loader_signs
from oracle.faults import FAULTS
from oracle.scenario import RequestSpec, Scenario

SPEC = CheckpointSpec(
    rope_type="llama3",
    rope_theta=500000.0,
    legacy_rope_keys=True,
    attention_bias=True,
    mlp_bias=True,
    eos_token_ids=(2, 3),
)


def signs_of(spec):
    """What differs between a loaded checkpoint and its files."""
    case = Case(Scenario(requests=(RequestSpec((1, 2)),), checkpoint=spec))
    return loader_signs(case, case.loaded(batch_invariant=True))


@pytest.mark.parametrize("change", [{}, {"tie_word_embeddings": True}, {"rope_type": "linear"}, {"dtype": "bfloat16"}])
def test_right_model_is_its_files(change):
    assert signs_of(replace(SPEC, **change)) == []


@pytest.mark.parametrize(
    ("fault", "file"),
    [
        ("rope_theta_default", "refinfer/config/rope_config.py"),
        ("legacy_rope_scaling_missed", "refinfer/config/rope_config.py"),
        ("rope_scaling_ignored", "refinfer/numerics/rotary.py"),
        ("tie_flag_ignored", "refinfer/model/checkpoint.py"),
        ("biases_left_zero", "refinfer/model/safetensors_file.py"),
    ],
)
def test_planted_bug_of_the_loader_is_named(fault, file):
    with FAULTS[fault].planted():
        signs = signs_of(SPEC)
    assert file in signs[0].suspect.sources

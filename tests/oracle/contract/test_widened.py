"""A widened model computes in float64 throughout: it is the witness's, and a prefix of it is its own."""

import numpy as np
import pytest
import torch

from oracle.contract.widened import KeepFloat64, WideReference
from oracle.families import FamilySpec, cached_family_checkpoint
from oracle.reference import Reference
from oracle.witness import Witness

pytestmark = pytest.mark.without_shape_checks

TOKENS = [(37 * place) % 131 for place in range(40)]
SAME = 1e-12


def test_widened_llama_is_the_witness():
    folder = cached_family_checkpoint(FamilySpec("llama"))
    logits = WideReference(folder).logits(TOKENS)
    assert logits.dtype == torch.float64
    assert np.abs(logits.numpy() - Witness.open(folder).logits(TOKENS)).max() < SAME


def test_model_that_is_only_loaded_in_float64_is_not():
    folder = cached_family_checkpoint(FamilySpec("llama"))
    logits = Reference.open(folder, dtype="float64", attn_implementation="eager").logits(TOKENS)
    assert np.abs(logits.numpy() - Witness.open(folder).logits(TOKENS)).max() > 1e-8


@pytest.mark.parametrize(
    "family", ["gemma2", "qwen3_moe:weights-sum-to-one", "gpt2", "mamba", "falcon_h1", "llama:yarn-rope"]
)
def test_prefix_of_a_widened_model_is_its_own_and_close_to_float32(family):
    folder = cached_family_checkpoint(FamilySpec(family))
    wide = WideReference(folder)
    logits = wide.logits(TOKENS)
    assert (wide.logits(TOKENS[:17]) - logits[:17]).abs().max() < SAME
    narrow = Reference.open(folder, attn_implementation="eager").logits(TOKENS)
    assert 0 < (narrow.double() - logits).abs().max() < 1e-3


def test_every_way_of_asking_for_float32_gives_float64():
    values = torch.ones(2, dtype=torch.float64)
    with KeepFloat64():
        asked = [values.float(), values.to(torch.float32), values.type(torch.float32), values.softmax(0, torch.float32)]
        made = torch.arange(3, dtype=torch.float32)
    assert {tensor.dtype for tensor in (*asked, made)} == {torch.float64}
    assert values.float().dtype == torch.float32

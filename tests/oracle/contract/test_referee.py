"""A referee gives float64 logits, and a bound that is several times what rounding does to a right implementation."""

import numpy as np
import pytest

from oracle.compare import as_rows
from oracle.contract.referee import ModelReferee
from oracle.errors import ReferenceUnavailable
from oracle.families import FamilySpec, cached_family_checkpoint
from oracle.reference import Reference
from oracle.tolerances import NOISE_FACTOR
from oracle.witness import Witness

pytestmark = pytest.mark.without_shape_checks

TOKENS = tuple((37 * place) % 131 for place in range(30))


@pytest.fixture(scope="module")
def folder():
    """A tiny Llama."""
    return cached_family_checkpoint(FamilySpec("llama"))


@pytest.mark.parametrize("witness", [False, True])
def test_either_referee_judges_as_the_witness_does(folder, witness):
    referee = ModelReferee(folder, witness=witness)
    judgement = referee.judge(TOKENS)
    assert np.abs(judgement.logits - Witness.open(folder).logits(TOKENS)).max() < 1e-12
    assert referee.name == ("witness" if witness else "transformers")


def test_bound_is_a_multiple_of_what_rounding_does(folder):
    judgement = ModelReferee(folder).judge(TOKENS)
    narrow = as_rows(Reference.open(folder, attn_implementation="eager").logits(TOKENS))
    error = np.abs(narrow - judgement.logits).max()
    assert judgement.bound == pytest.approx(NOISE_FACTOR * error, rel=0.5)
    assert 1e-6 < judgement.bound < 1e-2


def test_bound_grows_with_a_coarser_dtype(folder):
    assert ModelReferee(folder, "bfloat16").judge(TOKENS).bound > 100 * ModelReferee(folder).judge(TOKENS).bound


def test_logits_of_half_precision_are_kept_beside_those_of_float64(folder):
    judgement = ModelReferee(folder, "bfloat16").judge(TOKENS)
    assert judgement.narrow is not None
    assert 0.0 < np.abs(judgement.narrow - judgement.logits).max() == judgement.bound / NOISE_FACTOR
    assert ModelReferee(folder).judge(TOKENS).narrow is None


def test_what_was_asked_before_is_remembered(folder):
    referee = ModelReferee(folder)
    assert referee.judge(TOKENS) is referee.judge(list(TOKENS))


def test_folder_that_cannot_be_loaded_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(ReferenceUnavailable):
        ModelReferee(tmp_path)

"""The oracles are asked under the names that a pass shows, and rounding is measured by how far they part."""

import numpy as np
import pytest
import torch

from oracle.errors import ReferenceUnavailable, ScenarioError
from oracle.expectation import Oracles, widened
from oracle.passes import INPUT_IDS, POSITION_IDS, STEP_LOGITS, names_in_pass
from oracle.reference import Reference
from oracle.tolerances import FLOAT64_BOUND, NOISE_FACTOR
from oracle.witness import Witness

TOKEN_IDS = (3, 1, 4, 1, 5)


@pytest.fixture(scope="module")
def expectation_by_dtype(llama_folder):
    return {dtype: Oracles(llama_folder, dtype).expect([TOKEN_IDS])[0] for dtype in ("float32", "float64", "bfloat16")}


def test_expectation_has_the_names_of_a_pass_in_order(expectation_by_dtype):
    expectation = expectation_by_dtype["float32"]
    for side in (expectation.reference, expectation.witness, expectation.noise_by_name):
        assert set(side) == set(names_in_pass(num_layers=3))
    assert tuple(expectation.judge) == names_in_pass(num_layers=3)


def test_expectation_is_what_reference_and_witness_say(expectation_by_dtype, llama_folder):
    expectation = expectation_by_dtype["float32"]
    reference = Reference.open(llama_folder).activations(TOKEN_IDS)
    witness = Witness.open(llama_folder).activations(TOKEN_IDS)
    assert all(np.array_equal(expectation.reference[name], reference[name].numpy()) for name in reference)
    assert all(np.array_equal(expectation.witness[name], witness[name]) for name in witness)
    assert np.array_equal(expectation.reference[STEP_LOGITS], expectation.reference["lm_head"])


def test_nothing_rounds_token_ids_and_positions(expectation_by_dtype):
    for expectation in expectation_by_dtype.values():
        for side in (expectation.reference, expectation.witness):
            assert side[INPUT_IDS].tolist() == list(TOKEN_IDS)
            assert side[POSITION_IDS].tolist() == list(range(5))
        assert expectation.noise_by_name[INPUT_IDS] == expectation.noise_by_name[POSITION_IDS] == 0.0


def test_noise_is_a_multiple_of_how_far_the_oracles_part(expectation_by_dtype):
    for dtype in ("float32", "bfloat16"):
        expectation = expectation_by_dtype[dtype]
        parted = np.abs(expectation.reference["lm_head"] - expectation.witness["lm_head"]).max()
        assert expectation.noise_by_name["lm_head"] >= NOISE_FACTOR * parted > 0
    wide, narrow = (expectation_by_dtype[dtype].noise_by_name["lm_head"] for dtype in ("bfloat16", "float32"))
    assert wide > 1000 * narrow


def test_float64_is_judged_by_the_witness_and_its_bound(expectation_by_dtype):
    """The reference computes norms and angles in float32 whatever its dtype."""
    expectation = expectation_by_dtype["float64"]
    assert expectation.is_judged_by_witness
    assert expectation.judge is expectation.witness
    size = np.abs(expectation.witness["lm_head"]).max()
    assert expectation.noise_by_name["lm_head"] == pytest.approx(FLOAT64_BOUND * max(size, 1.0))


def test_other_dtypes_are_judged_by_the_reference(expectation_by_dtype):
    for dtype in ("float32", "bfloat16"):
        expectation = expectation_by_dtype[dtype]
        assert expectation.judge is expectation.reference


def test_oracles_answer_the_same_question_once(llama_folder):
    oracles = Oracles(llama_folder, "float32")
    first = oracles.expect([[1, 2], [3]])
    assert oracles.expect(((1, 2), (3,))) is first
    other = oracles.expect([[1, 2], [4]])
    assert [expectation.witness[INPUT_IDS].tolist() for expectation in other] == [[1, 2], [4]]


def test_oracles_refuse_a_request_without_a_token(llama_folder):
    oracles = Oracles(llama_folder, "float32")
    with pytest.raises(ScenarioError):
        oracles.expect([[1], []])


def test_oracles_refuse_a_folder_that_is_no_checkpoint(tmp_path):
    with pytest.raises(ReferenceUnavailable):
        Oracles(tmp_path, "float32")


def test_widened_changes_no_value():
    tensor = torch.tensor([1 / 3, 2.0]).bfloat16()
    assert widened(tensor).dtype == np.float64
    assert widened(tensor).tolist() == tensor.tolist()
    array = np.array([0.1])
    assert widened(array) is array

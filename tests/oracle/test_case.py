"""A case computes each thing once, gives the right referee for each dtype, and derives its bound from the run."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from oracle.case import Case
from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.engine_spec import EngineSpec
from oracle.errors import OutcomeMismatch, ScenarioError
from oracle.reference import Reference
from oracle.scenario import DTYPES, RequestSpec, Scenario
from oracle.subjects import MODES, RefinferSubject
from oracle.tolerances import FLOAT64_BOUND, NOISE_FACTOR, SMALLEST_NOISE_IN_EPS

TOKENS = (1, 2, 3, 4, 5)
SCENARIO = Scenario(
    requests=(RequestSpec((1, 2, 3), max_tokens=3), RequestSpec((7,), max_tokens=2), RequestSpec((9, 9), max_tokens=1)),
    checkpoint=CheckpointSpec(num_layers=1),
)


@pytest.fixture(scope="module")
def case():
    """A case on a generated model."""
    return Case(SCENARIO)


def test_case_refuses_a_scenario_without_a_checkpoint():
    with pytest.raises(ScenarioError, match="--model"):
        Case(replace(SCENARIO, checkpoint=None))


def test_generated_checkpoint_stands_above_a_folder(tmp_path):
    assert Case(SCENARIO, tmp_path).folder != tmp_path


def test_two_cases_on_one_spec_share_its_folder():
    assert Case(SCENARIO).folder == Case(SCENARIO.alone(1)).folder


def test_generated_folder_lives_as_long_as_its_case():
    """More specs than are kept in memory come after it."""
    first = Case(SCENARIO)
    for seed in range(20):
        Case(replace(SCENARIO, checkpoint=CheckpointSpec(seed=seed, num_layers=1, hidden_size=4, vocab_size=3)))
    assert (first.folder / "config.json").is_file()


@pytest.mark.parametrize("mode", MODES)
def test_runs_are_made_once(case, mode):
    assert case.records(mode) is case.records(mode)
    with mock.patch.object(RefinferSubject, "run", side_effect=AssertionError):
        case.records(mode)


def test_oracles_are_asked_once():
    case = Case(SCENARIO)
    assert case.reference_logits(TOKENS) is case.reference_logits(TOKENS)
    assert case.witness_logits(TOKENS) is case.witness_logits(TOKENS)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1,), (2, 0)])
def test_records_come_in_the_order_that_was_asked_for(case, order):
    records = case.records_in_order("continuous", order)
    assert [record.prompt_token_ids for record in records] == [SCENARIO.requests[i].prompt_token_ids for i in order]


def test_case_refuses_records_of_other_requests():
    case = Case(SCENARIO)
    reversed_records, one_record = case.records_in_order("none", (2, 1, 0)), case.records_in_order("none", (0,))
    with (
        mock.patch.object(RefinferSubject, "run", return_value=reversed_records),
        pytest.raises(OutcomeMismatch, match="request 0: another prompt ran"),
    ):
        case.records("static")
    with (
        mock.patch.object(RefinferSubject, "run", return_value=one_record),
        pytest.raises(OutcomeMismatch, match="3 requests were given and 1 records came back"),
    ):
        case.records("static")


def test_case_refuses_more_requests_in_a_step_than_max_num_seqs():
    case = Case(replace(SCENARIO, max_num_seqs=2))
    together = Case(SCENARIO).records("continuous")
    with (
        mock.patch.object(RefinferSubject, "run", return_value=together),
        pytest.raises(OutcomeMismatch, match="ran in a step of 3 requests; max_num_seqs is 2"),
    ):
        case.records("continuous")


@pytest.mark.parametrize("eos_token_ids", [(), (5,), (5, 9, 2)])
def test_eos_token_ids_are_read_from_the_files(eos_token_ids):
    spec = CheckpointSpec(num_layers=1, eos_token_ids=eos_token_ids)
    assert Case(replace(SCENARIO, checkpoint=spec)).eos_token_ids == eos_token_ids


def test_eos_token_ids_of_config_json_count_where_nothing_else_names_any(tmp_path):
    folder = write_checkpoint(CheckpointSpec(num_layers=1, eos_token_ids=(5, 9)), tmp_path / "model")
    (folder / "generation_config.json").unlink()
    assert Case(replace(SCENARIO, checkpoint=None), folder).eos_token_ids == (5,)


def test_output_rows_are_those_that_tokens_were_picked_from(case):
    """The logits after a token decide the next one."""
    record = case.records("none")[0]
    rows = case.reference_logits(record.token_ids)[case.output_rows(record)]
    assert tuple(rows.argmax(axis=1)) == record.output_token_ids
    assert len(rows) == len(record.output_token_ids)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reference_runs_in_the_dtype_of_the_scenario(dtype):
    case = Case(replace(SCENARIO, dtype=dtype))
    expected = Reference.open(case.folder, dtype).logits(list(TOKENS)).double().numpy()
    assert np.array_equal(case.reference_logits(TOKENS), expected)
    single = Reference.open(case.folder, "float32").logits(list(TOKENS)).double().numpy()
    assert np.array_equal(case.reference_logits(TOKENS, "float32"), single)


@pytest.mark.parametrize("dtype", DTYPES)
def test_float32_is_judged_by_the_reference_and_every_other_dtype_by_the_witness(dtype):
    """In float64 the reference computes partly in float32; in half precision it is as rough as the subject."""
    case = Case(replace(SCENARIO, dtype=dtype))
    referee = case.reference_logits(TOKENS) if dtype == "float32" else case.witness_logits(TOKENS)
    assert case.referee_logits(TOKENS) is referee


def test_float64_has_a_bound_of_its_own():
    assert Case(replace(SCENARIO, dtype="float64")).bound(TOKENS) == FLOAT64_BOUND


@pytest.mark.parametrize(("dtype", "eps"), [("float32", 2**-23), ("bfloat16", 2**-7), ("float16", 2**-10)])
def test_bound_is_a_multiple_of_the_error_that_the_reference_makes_on_these_tokens(dtype, eps, scripted_case):
    case = scripted_case(replace(SCENARIO, dtype=dtype))
    witness = case.witness_logits(TOKENS)
    floor = SMALLEST_NOISE_IN_EPS * eps * np.abs(witness).max()
    for error, noise in ((0.0, floor), (floor / 2, floor), (10 * floor, 10 * floor)):
        with mock.patch.object(case, "reference_logits", lambda _tokens, error=error: witness + error):
            assert case.bound(TOKENS) == pytest.approx(NOISE_FACTOR * noise)


def test_a_folder_that_is_given_is_used_as_it_is(tmp_path):
    folder = write_checkpoint(CheckpointSpec(num_layers=1), tmp_path / "model")
    case = Case(replace(SCENARIO, checkpoint=None), folder)
    assert case.folder == folder
    assert [record.output_token_ids for record in case.records("none")] == [
        record.output_token_ids for record in Case(SCENARIO).records("none")
    ]


def test_draft_model_is_a_smaller_one_of_the_same_vocabulary_with_other_weights():
    spec = CheckpointSpec(num_layers=2)
    case = Case(replace(SCENARIO, checkpoint=spec, engine=EngineSpec(speculative="draft")))
    draft_model, model = case.draft_model, case.loaded(batch_invariant=True).model
    assert draft_model is case.draft_model, "it is loaded once"
    assert draft_model is not None
    assert (draft_model.config.num_layers, draft_model.config.vocab_size) == (1, model.config.vocab_size)
    first, other = (dict(own.named_parameters())["model.embed_tokens.weight"] for own in (draft_model, model))
    assert not first.equal(other)


@pytest.mark.parametrize("speculative", [None, "ngram", "scripted", "self"])
def test_no_draft_model_is_loaded_where_none_guesses(speculative):
    assert Case(replace(SCENARIO, engine=EngineSpec(speculative=speculative))).draft_model is None


def test_checkpoint_that_was_not_generated_has_no_draft_model(tmp_path):
    write_checkpoint(CheckpointSpec(num_layers=1), tmp_path)
    scenario = replace(SCENARIO, checkpoint=None, engine=EngineSpec(speculative="draft"))
    assert Case(scenario, tmp_path).draft_model is None

"""The continuous cache: one growing run for each request, against the reference, the witness, and itself."""

import pytest
from hypothesis import given, settings

from oracle.case import Case
from oracle.metamorphic_properties import check_alone_equals_batched, check_order
from oracle.reference_properties import (
    check_greedy_tokens,
    check_half_precision,
    check_reference_logits,
    check_stopping,
    check_witness_logits,
)
from oracle.strategies import scenarios

pytestmark = pytest.mark.without_shape_checks

FEW = settings(max_examples=max(5, settings().max_examples // 4))
"""`python -m oracle check` draws hundreds; here the shape checks run as well, and each case costs more."""


@FEW
@given(scenario=scenarios(dtypes=("float32",)))
def test_continuous_matches_reference_logits(scenario):
    check_reference_logits(Case(scenario), "continuous")


@FEW
@given(scenario=scenarios())
def test_continuous_matches_reference_token_ids(scenario):
    check_greedy_tokens(Case(scenario), "continuous")


@FEW
@given(scenario=scenarios(dtypes=("float64",)))
def test_continuous_matches_witness_logits(scenario):
    check_witness_logits(Case(scenario), "continuous")


@FEW
@given(scenario=scenarios(dtypes=("bfloat16", "float16")))
def test_continuous_is_as_close_to_the_witness_as_the_reference_in_half_precision(scenario):
    check_half_precision(Case(scenario), "continuous")


@FEW
@given(scenario=scenarios())
def test_company_and_order_do_not_change_what_continuous_computes(scenario):
    case = Case(scenario)
    check_alone_equals_batched(case, "continuous")
    check_order(case, "continuous")


@FEW
@given(scenario=scenarios(dtypes=("float32",)))
def test_continuous_ends_every_request_where_it_should(scenario):
    check_stopping(Case(scenario), "continuous")


@FEW
@given(scenario=scenarios(dtypes=("float64",)))
def test_continuous_equals_none_token_ids(scenario):
    """In float64 rounding is far below any gap that is no exact tie, and both break those alike."""
    case = Case(scenario)
    for own, other in zip(case.records("continuous"), case.records("none"), strict=True):
        assert own.output_token_ids == other.output_token_ids
        assert own.finish_reason == other.finish_reason
